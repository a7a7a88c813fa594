"""Clusters as users name them: shorthand, TOML, node lists; memory and price come from the catalogue."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from builders import cluster, node
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.units import GIB
from gpuwise.devices.catalogue import gpu_type
from gpuwise.service.offline.clusters import load_cluster

V100 = gpu_type("V100")
GOOD = 'gpu_type = "V100"\ngpus = 4\n'


def from_toml(tmp_path: Path, text: str) -> ClusterSpec:
    path = tmp_path / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return load_cluster(str(path))


# -- shorthand ---------------------------------------------------------------------------------------------------------


def test_shorthand_has_memory_and_price_from_the_catalogue() -> None:
    spec = load_cluster("2x4:V100+1x8:T4")
    assert [(each.name, each.gpu_type, each.gpus) for each in spec.nodes] == [
        ("n0", "V100", 4), ("n1", "V100", 4), ("n2", "T4", 8),
    ]  # fmt: skip
    assert [each.gpu_memory_bytes for each in spec.nodes] == [16 * GIB] * 3
    assert V100.usd_per_hour is not None
    assert spec.nodes[0].usd_per_hour == pytest.approx(4 * V100.usd_per_hour)
    assert all(math.isinf(each.cpus) and math.isinf(each.memory_bytes) for each in spec.nodes)


def test_an_alias_becomes_the_name_of_the_catalogue() -> None:
    assert load_cluster("1x2:Tesla V100").nodes[0].gpu_type == "V100"
    assert load_cluster("1x2:v100").describe() == "1x2:V100"


def test_a_price_that_is_not_known_stays_so() -> None:
    assert gpu_type("RTX2080Ti").usd_per_hour is None
    assert math.isnan(load_cluster("1x8:RTX2080Ti").nodes[0].usd_per_hour)


def test_an_object_is_taken_as_it_is() -> None:
    spec = cluster(node("mine", 3, "home-made"))
    assert load_cluster(spec) is spec


@pytest.mark.parametrize("text", ["", "8", "8x8", "8x8:", "x8:V100", "8x8:V100+", "-1x8:V100", "8x8:V100,2x2:T4"])
def test_bad_shorthand_says_how_to_write_it(text: str) -> None:
    with pytest.raises(GpuwiseError, match=r"is not NODESxGPUS:TYPE; write for example 8x8:V100"):
        load_cluster(text)


@pytest.mark.parametrize("text", ["0x8:V100", "8x0:V100", "1000001x8:V100", "1x65:V100"])
def test_sizes_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(GpuwiseError, match="must"):
        load_cluster(text)


def test_an_unknown_type_has_near_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU type 'A1000'; did you mean A100"):
        load_cluster("1x1:V100+1x1:A1000")


# -- TOML --------------------------------------------------------------------------------------------------------------


def test_a_file_counts_and_names_nodes(tmp_path: Path) -> None:
    spec = from_toml(
        tmp_path,
        f'[[node]]\ncount = 2\n{GOOD}[[node]]\nname = "big"\ngpu_type = "Tesla T4"\ngpus = 8\n'
        '[[node]]\nname = "rack"\ncount = 2\ngpu_type = "T4"\ngpus = 1\n',
    )
    assert [each.name for each in spec.nodes] == ["n0", "n1", "big", "rack3", "rack4"]
    assert spec.describe() == "2x4:V100+1x8:T4+2x1:T4"
    assert {each.gpu_memory_bytes for each in spec.nodes} == {16 * GIB}
    assert V100.usd_per_hour is not None
    assert spec.nodes[0].usd_per_hour == pytest.approx(4 * V100.usd_per_hour)


def test_what_a_file_says_goes_before_the_catalogue(tmp_path: Path) -> None:
    fields = 'cpus = 48\nmemory_bytes = "384G"\ngpu_memory_bytes = "32GiB"\nspeed = 1.5\nusd_per_hour = 9.5\n'
    first, second = from_toml(tmp_path, f"[[node]]\n{GOOD}{fields}[[node]]\n{GOOD}").nodes
    assert (first.cpus, first.memory_bytes, first.gpu_memory_bytes) == (48, 384 * GIB, 32 * GIB)
    assert (first.speed, first.usd_per_hour) == (1.5, 9.5)  # the price is the node's, not each GPU's
    assert (second.speed, second.gpu_memory_bytes) == (1.0, 16 * GIB)


def test_a_path_works_as_its_text_does(tmp_path: Path) -> None:
    expected = from_toml(tmp_path, f"[[node]]\n{GOOD}")
    assert load_cluster(tmp_path / "cluster.toml") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("eight nodes", "line 1"),
        ("", r"no \[\[node\]\]"),
        (f"[node]\n{GOOD}", r"\[\[node\]\]"),
        ("node = [3]", r"\[\[node\]\]"),
        (f"[[nodes]]\n{GOOD}", r"\[\[node\]\]"),
        (f"[[node]]\n{GOOD}[[nodes]]\n{GOOD}", "nodes"),
        (f"[[node]]\n{GOOD}gpuz = 3", "unknown node field .*'gpuz'; did you mean gpus"),
        ("[[node]]\ngpus = 4", "gpu_type"),
        ('[[node]]\ngpu_type = "V100"', "gpus"),
    ],
    ids=["prose", "empty", "one table", "numbers", "mistyped", "one mistyped", "unknown field", "no type", "no gpus"],
)
def test_a_file_that_is_no_cluster_says_why(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match=words) as caught:
        from_toml(tmp_path, text)
    assert "cluster.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_type", "5"),
        ("gpus", '"four"'),
        ("gpus", "4.5"),
        ("gpus", "true"),
        ("gpus", "65"),
        ("count", '"two"'),
        ("count", "1.5"),
        ("count", "0"),
        ("count", "-1"),
        ("count", "1_000_001"),
        ("name", "7"),
        ("cpus", '"8"'),
        ("cpus", "-1"),
        ("speed", '"fast"'),
        ("speed", "0"),
        ("usd_per_hour", '"cheap"'),
        ("usd_per_hour", "-3"),
        ("gpu_memory_bytes", '"16Q"'),
        ("gpu_memory_bytes", "[16]"),
    ],
)
def test_a_wrong_value_is_told_with_its_field(field: str, value: str, tmp_path: Path) -> None:
    fields = {"gpu_type": '"V100"', "gpus": "4", field: value}
    with pytest.raises(GpuwiseError) as caught:
        from_toml(tmp_path, "[[node]]\n" + "".join(f"{name} = {text}\n" for name, text in fields.items()))
    shown = value.strip('"[]').replace("_", "").replace("true", "True")
    assert "cluster.toml" in str(caught.value)
    assert field in str(caught.value)
    assert shown in str(caught.value)


def test_an_unknown_type_in_a_file_has_near_names(tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match="unknown GPU type 'V10'; did you mean V100"):
        from_toml(tmp_path, '[[node]]\ngpu_type = "V10"\ngpus = 4\n')


def test_two_nodes_of_one_name_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match=r"same name.*'a'|'a'.*same name"):
        from_toml(tmp_path, f'[[node]]\nname = "a"\n{GOOD}[[node]]\nname = "a"\n{GOOD}')


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match=r"nowhere\.toml"):
        load_cluster(tmp_path / "nowhere.toml")


def test_a_node_list_is_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nx,64000,262144,2,P100\ny,96000,1024,8,T4\n")
    first, second = load_cluster(path).nodes
    assert (first.name, first.gpu_type, first.gpus, first.cpus) == ("x", "P100", 2, 64.0)
    assert (second.name, second.memory_bytes, second.gpu_memory_bytes) == ("y", GIB, 16 * GIB)


def test_labels_ids_links_and_drains_are_read(tmp_path: Path) -> None:
    stated = 'labels = { zone = "a", rack = "r1" }\nuid = "m1"\nlinks = [[0, 1], [2, 3]]\nschedulable = false\n'
    (first,) = from_toml(tmp_path, f'[[node]]\n{GOOD}{stated}device_ids = ["a", "b", "c", "d"]\n').nodes
    assert first.labels == (("rack", "r1"), ("zone", "a"))
    assert (first.uid, first.links, first.schedulable) == ("m1", ((0, 1), (2, 3)), False)
    assert [first.device_id(device) for device in range(4)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ('labels = "a"', 'write for example labels = { zone = "a"'),
        ("labels = { zone = 3 }", "labels is"),
        ('device_ids = "a"', "a list of UUIDs"),
        ('device_ids = ["a"]', "one for each of its 4 GPUs"),
        ("links = [0, 1]", "groups of GPUs joined by NVLink"),
        ("links = [[0, 7]]", "devices from 0 to 3, once"),
        ("schedulable = 1", "true or false"),
        ('uid = "m1"\ncount = 2', "that of one node only"),
    ],
)
def test_what_is_wrong_about_a_node_is_named(field: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match=words):
        from_toml(tmp_path, f"[[node]]\n{GOOD}{field}\n")
