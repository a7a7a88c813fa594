"""What a user declares: every mistake is named, with its value and what to write instead."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import capacity_of, cluster, job, node, shapes_of
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable

WRONG_JOBS = {
    "no time": ({"duration_s": 0.0}, "job 'x': duration_s is 0.0; it must be a duration above 0 s"),
    "endless": ({"duration_s": math.inf}, "job 'x': duration_s is inf; it must be a duration above 0 s"),
    "time unknown": ({"duration_s": math.nan}, "job 'x': duration_s is nan; it must be a duration above 0 s"),
    "never submitted": ({"at": math.inf}, "job 'x': submit_s is inf; it must be a time from 0 s"),
    "negative gang": ({"gpus": -1}, "job 'x': gpus is -1; it must be a whole number of GPUs from 0 to 65536"),
    "below its range": ({"gpus": 1, "min_gpus": 2}, "job 'x': gpus is 1; it must be between min_gpus and max_gpus"),
    "above its range": ({"gpus": 4, "max_gpus": 2}, "job 'x': gpus is 4; it must be between min_gpus and max_gpus"),
    "no share": ({"gpu_frac": 0.0}, "job 'x': gpu_frac is 0.0; it must be a fraction above 0 and at most 1"),
    "too large a share": ({"gpu_frac": 1.5}, "job 'x': gpu_frac is 1.5; it must be a fraction above 0 and at most 1"),
    "share of a gang": (
        {"gpus": 2, "gpu_frac": 0.5},
        "job 'x': gpu_frac is 0.5; it must be 1 unless the job asks for one GPU",
    ),
    "no steps": ({"steps": 0.0}, "job 'x': steps is 0.0; it must be a number of steps above 0"),
    "deadline unknown": ({"deadline_s": math.nan}, "job 'x': deadline_s is nan; it must be a deadline in s, or inf"),
    "no sharing": (
        {"sharing": frozenset()},
        "job 'x': sharing is frozenset(); it must be at least one of exclusive, time_slice, shared, mig",
    ),
    "negative memory": (
        {"gpu_memory_bytes": -1.0},
        "job 'x': gpu_memory_bytes is -1.0; it must be a number of bytes from 0",
    ),
    "endless memory": ({"memory_bytes": math.inf}, "job 'x': memory_bytes is inf; it must be a number of bytes from 0"),
    "cpus unknown": ({"cpus": math.nan}, "job 'x': cpus is nan; it must be a number of CPU cores from 0 to 1000000"),
    "negative suspension": ({"suspend_s": -1.0}, "job 'x': suspend_s is -1.0; it must be a number of seconds from 0"),
    "negative resumption": ({"resume_s": -1.0}, "job 'x': resume_s is -1.0; it must be a number of seconds from 0"),
    "negative migration": ({"migrate_s": -1.0}, "job 'x': migrate_s is -1.0; it must be a number of seconds from 0"),
    "negative resize": ({"resize_s": -1.0}, "job 'x': resize_s is -1.0; it must be a number of seconds from 0"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_JOBS.values(), ids=WRONG_JOBS)
def test_a_job_that_cannot_be_is_refused_with_the_value_and_what_it_must_be(wrong: dict[str, Any], message: str):
    with pytest.raises(GpuwiseError) as refused:
        job("x", **wrong)
    assert str(refused.value) == message


@pytest.mark.parametrize("wrong", [{"gpus": 0, "max_gpus": 4}, {"gpu_frac": 0.5, "max_gpus": 4}], ids=["none", "part"])
def test_an_elastic_range_is_for_jobs_of_whole_gpus(wrong: dict[str, Any]):
    """A job declared without GPUs has no speed on one of them to scale from; a part of a GPU is not a gang."""
    with pytest.raises(GpuwiseError, match="job 'x': "):
        job("x", **wrong)


def test_a_job_fills_in_its_range_and_its_steps():
    assert job("x", 30.0, 4).gpu_range == (4, 4)
    assert job("x", 30.0, 4, min_gpus=1, max_gpus=8).gpu_range == (1, 8)
    table = JobTable()
    table.declare([job("x", 30.0), job("y", 30.0, steps=900.0)])
    assert table.steps[:2].tolist() == [30.0, 900.0]
    assert job("x", 30.0, gpus=0).gpu_range == (0, 0)


WRONG_NODES = {
    "too many": ({"gpus": 65}, "node 'n': gpus is 65; it must be a whole number from 0 to 64"),
    "negative": ({"gpus": -1}, "node 'n': gpus is -1; it must be a whole number from 0 to 64"),
    "cpus": ({"gpus": 1, "cpus": -2}, "node 'n': cpus is -2; it must be 0 or more"),
    "memory": ({"gpus": 1, "memory_bytes": math.nan}, "node 'n': memory_bytes is nan; it must be 0 or more"),
    "still": ({"gpus": 1, "speed": 0.0}, "node 'n': speed is 0.0; it must be above 0"),
    "endless": ({"gpus": 1, "speed": math.inf}, "node 'n': speed is inf; it must be above 0"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_NODES.values(), ids=WRONG_NODES)
def test_a_node_that_cannot_be_is_refused(wrong: dict[str, Any], message: str):
    with pytest.raises(GpuwiseError) as refused:
        NodeSpec(name="n", gpu_type="V100", **wrong)
    assert str(refused.value) == message


def test_nodes_of_a_cluster_have_different_names():
    with pytest.raises(GpuwiseError, match="two nodes of the cluster have the same name"):
        cluster(node("a", 1), node("a", 2))


def test_a_gpu_type_with_another_memory_size_or_speed_is_another_type():
    small, large = node("a", 1, gpu_memory_bytes=16e9), node("b", 1, gpu_memory_bytes=32e9)
    fast = node("c", 1, gpu_memory_bytes=32e9, speed=2.0)
    capacity = capacity_of(cluster(small, large, fast, replace(small, name="d")))
    anywhere, on_large = shapes_of(job("any"), job("large", gpu_memory_bytes=20e9, gpu_types=("V100",)))
    assert capacity.nodes.types == ["V100", "V100", "V100"]
    assert capacity.nodes.type_of == [0, 1, 2, 0]
    assert capacity.types_for(anywhere) == (0, 1, 2)
    assert capacity.types_for(on_large) == (1, 2)


# -- shorthand ---------------------------------------------------------------------------------------------------------


def test_shorthand_gives_nodes_in_order():
    spec = ClusterSpec.parse("2x4:T4+1x8:RTX 2080 Ti + 1x2:A100-SXM4")
    assert [(each.name, each.gpus, each.gpu_type) for each in spec.nodes] == [
        ("n0", 4, "T4"),
        ("n1", 4, "T4"),
        ("n2", 8, "RTX 2080 Ti"),
        ("n3", 2, "A100-SXM4"),
    ]
    assert spec.gpus == 4 + 4 + 8 + 2


BAD_SHORTHAND = {
    "nothing": "",
    "no type": "8x8",
    "no nodes": "x8:V100",
    "empty type": "8x8:",
    "a space for a type": "8x8: ",
    "words": "eight by eight",
    "no group after +": "8x8:V100+",
    "negative": "-8x8:V100",
    "fraction": "1.5x8:V100",
    "commas": "2x4:T4,3x8:A100",
    "three numbers": "2x4x8:T4",
}


@pytest.mark.parametrize("text", BAD_SHORTHAND.values(), ids=BAD_SHORTHAND)
def test_what_is_not_shorthand_is_shown_with_an_example(text: str):
    with pytest.raises(GpuwiseError, match=r"is not NODESxGPUS:TYPE; write for example 8x8:V100, or 6x4:T4\+2x8:A100"):
        ClusterSpec.parse(text)


@pytest.mark.parametrize("text", ["0x8:V100", "8x0:V100", "1000001x8:V100", "1x1:T4+1000000x1:T4"])
def test_numbers_of_nodes_and_gpus_have_limits(text: str):
    with pytest.raises(GpuwiseError, match="must have 1 to 1000000 nodes of 1 or more GPUs"):
        ClusterSpec.parse(text)


def test_a_node_of_more_than_64_gpus_is_refused():
    with pytest.raises(GpuwiseError, match="gpus is 72; it must be a whole number from 0 to 64"):
        ClusterSpec.parse("1x72:GB200")


groups = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 64), st.sampled_from(["V100", "T4", "A100-40GB"])), min_size=1
)


@given(groups)
def test_describing_a_cluster_and_parsing_it_gives_the_same_cluster(parts: list[tuple[int, int, str]]):
    spec = ClusterSpec.parse("+".join(f"{count}x{gpus}:{gpu_type}" for count, gpus, gpu_type in parts))
    assert len(spec.nodes) == sum(count for count, _, _ in parts)
    assert spec.gpus == sum(count * gpus for count, gpus, _ in parts)
    assert ClusterSpec.parse(spec.describe()) == spec


def test_neighbours_of_one_kind_are_described_together():
    assert cluster("2x4:T4+3x4:T4+1x8:T4").describe() == "5x4:T4+1x8:T4"


def test_a_job_is_frozen():
    with pytest.raises(AttributeError):
        job("x").gpus = 2  # type: ignore[misc]
    assert job("x") == JobSpec(id="x", duration_s=10.0)


def test_speeds_are_for_the_predicted_run_time_and_for_the_middle_of_any_other() -> None:
    asked = JobRequest(command=("true",), predicted_s=100.0, speeds={"K80": 1.0, "V100": 4.0})
    assert dict(asked.spec("a", submit_s=0.0, duration_s=100.0).speeds) == {"K80": 1.0, "V100": 4.0}
    assert dict(asked.spec("a", submit_s=0.0, duration_s=60.0).speeds) == pytest.approx({"K80": 0.5, "V100": 2.0})
