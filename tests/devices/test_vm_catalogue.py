"""VM types: figures of the price lists they name, prices that agree with those of GPU types, names in any spelling."""

import csv
import dataclasses
import time

import pytest

from gpuwise.core.errors import UnknownNameError
from gpuwise.devices import vms
from gpuwise.devices.catalogue import gpu_type, gpu_types
from gpuwise.devices.vms import VmType, vm_type, vm_types

LISTS = {"AWS v7": "aws_gpu_vms_v7.csv", "Azure v8": "azure_gpu_vms_v8.csv", "Azure v4": "azure_gpu_vms_v4.csv"}
# What the lists have wrong or leave open.
GPUS = {"Standard_ND96isr_H100_v5": 8}
BOARDS = {("H100", "H100-NVL"), ("A100-80GB", "A100-PCIe-80GB")}

ALL = list(vm_types().values())


# -- the price lists ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def offers(shared_data):
    """Rows of the price lists by the list's title and the VM's name."""
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for title, file in LISTS.items():
        for row in _rows(shared_data / "skypilot_catalog" / file):
            found.setdefault((title, row["InstanceType"]), []).append(row)
    return found


@pytest.mark.parametrize("vm", ALL, ids=lambda vm: vm.name)
def test_figures_are_those_of_the_list_it_names(vm, offers):
    listed = offers[_list_of(vm), vm.name]
    for row in listed:
        assert vm.gpus == GPUS.get(vm.name, float(row["AcceleratorCount"]))
        assert (vm.vcpus, vm.memory_bytes / 2**30) == (float(row["vCPUs"]), float(row["MemoryGiB"]))
        named = row["AcceleratorName"]
        assert vm.gpu == gpu_type(named).name or (named, vm.gpu) in BOARDS


@pytest.mark.parametrize("vm", ALL, ids=lambda vm: vm.name)
def test_the_price_is_the_cheapest_region_s(vm, offers):
    priced = [row for row in offers[_list_of(vm), vm.name] if row["Price"]]
    assert vm.usd_per_hour == min(float(row["Price"]) for row in priced)
    cheapest = [row for row in priced if float(row["Price"]) == vm.usd_per_hour]
    assert vm.region in {row["Region"] for row in cheapest}
    # of regions that tie, the one with the lowest spot price
    spot = min((float(row["SpotPrice"]) for row in cheapest if row["SpotPrice"]), default=None)
    assert vm.usd_per_hour_spot == spot
    here = {float(row["SpotPrice"]) for row in cheapest if row["Region"] == vm.region and row["SpotPrice"]}
    assert spot is None or spot in here


def test_a_current_list_goes_before_a_frozen_one(offers):
    for vm in ALL:
        if "frozen" in vm.source:
            assert ("Azure v8", vm.name) not in offers


def test_counts_differ_from_the_list_only_where_the_source_says_so(offers):
    for vm in ALL:
        listed = {float(row["AcceleratorCount"]) for row in offers[_list_of(vm), vm.name]}
        assert (listed != {vm.gpus}) == ("12 GPUs" in vm.source)


# -- what must hold without them ---------------------------------------------------------------------------------------


def test_the_cheapest_vm_of_a_gpu_type_is_the_gpu_catalogue_s_price():
    cheapest = {vm.gpu: min(each.usd_per_gpu_hour for each in vm_types(gpu=vm.gpu).values()) for vm in ALL}
    # the P4 is priced without a host, so no VM has it
    priced = {gpu.name: gpu.usd_per_hour for gpu in gpu_types().values() if gpu.usd_per_hour and gpu.name != "P4"}
    assert cheapest == pytest.approx(priced, abs=5e-7)


@pytest.mark.parametrize("vm", ALL, ids=lambda vm: vm.name)
def test_figures_are_whole_and_their_gpu_is_in_the_catalogue(vm):
    assert vm.gpu in gpu_types(), "the type's own name, not an alias"
    assert all(type(each) is int and each > 0 for each in (vm.gpus, vm.vcpus, vm.memory_bytes))
    assert vm.usd_per_hour > 0
    assert vm.usd_per_hour_spot is None or 0 < vm.usd_per_hour_spot <= vm.usd_per_hour
    assert "skypilot-catalog f2624ac (2026-08-22)" in vm.source
    assert not vm.name.endswith("_Promo")


def test_azure_s_older_families_are_there_for_capacity_planning():
    families = {"K80": "NC6 NC12 NC24", "M60": "NV6 NV12 NV24", "P40": "ND6s ND12s ND24s", "P100": "NC6s_v2 NC12s_v2"}
    for gpu, names in families.items():
        found = [vm_type(name) for name in names.split()]
        assert {vm.gpu for vm in found} == {gpu}
        assert [vm.gpus for vm in found] == [1, 2, 4][: len(found)]
        assert {vm.vcpus / vm.gpus for vm in found} == {6}


def test_a_price_by_the_gpu():
    assert vm_type("Standard_NC24s_v3").usd_per_gpu_hour == pytest.approx(12.24 / 4)


def test_a_row_without_a_spot_price_has_none():
    columns = ["gpu", "gpus", "vcpus", "memory_gib", "region", "usd_per_hour", "usd_per_hour_spot"]
    listed = {
        "cloud": "c",
        "source": "s",
        "vms": {"x": ["T4", 2, 8, 16, "r", 1.5], "y": ["T4", 2, 8, 16, "r", 1.5, 0.5]},
    }
    spots = {vm.name: vm.usd_per_hour_spot for vm in vms.parse({"columns": columns, "lists": [listed]})}
    assert spots == {"x": None, "y": 0.5}


# -- looking up --------------------------------------------------------------------------------------------------------


def test_types_come_cheapest_first():
    prices = [vm.usd_per_hour for vm in vm_types().values()]
    assert prices == sorted(prices)
    assert 60 <= len(prices) <= 120
    assert all(name == vm.name for name, vm in vm_types().items())


def test_types_of_a_gpu_and_of_a_cloud():
    assert {vm.gpu for vm in vm_types(gpu="tesla v100").values()} == {"V100"}
    assert {vm.cloud for vm in vm_types(cloud="AWS").values()} == {"aws"}
    assert list(vm_types(gpu="A100", cloud="aws")) == ["p4d.24xlarge"]
    assert len(vm_types(cloud="aws")) + len(vm_types(cloud="azure")) == len(vm_types())
    assert not vm_types(gpu="RTX3090"), "a GPU that none of them has"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("NC6", "Standard_NC6"),
        ("standard_nc6", "Standard_NC6"),
        ("nc24rs v3", "Standard_NC24rs_v3"),
        ("P4D-24XLARGE", "p4d.24xlarge"),
    ],
)
def test_spelling_does_not_matter(asked, name):
    assert vm_type(asked).name == name


def test_every_type_is_found_by_its_own_name():
    assert [vm_type(vm.name) for vm in ALL] == ALL


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [("ND6", "ND6s"), ("Standard_NC7", "Standard_NC6"), ("p4d.24xlrage", "p4d.24xlarge"), ("nc6_v3", "NC6s_v3")],
)
def test_unknown_types_name_the_nearest(asked, nearest):
    with pytest.raises(UnknownNameError) as failure:
        vm_type(asked)
    assert nearest in failure.value.nearest
    assert repr(asked) in str(failure.value)
    assert vm_type(nearest), "what is proposed is there"


def test_unknown_gpus_and_clouds_name_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown GPU type 'V10'; did you mean V100"):
        vm_types(gpu="V10")
    with pytest.raises(UnknownNameError, match="unknown cloud 'gcp'; did you mean aws, azure"):
        vm_types(cloud="gcp")


def test_a_type_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        vm_type("NC6").gpus = 0
    with pytest.raises(TypeError):
        vm_types()["NC6"] = None
    assert isinstance(vm_type("NC6"), VmType)
    assert hash(vm_type("NC6")) == hash(vm_type("Standard_NC6"))


def test_loading_is_quick():
    def load_s():
        vms.catalogue.cache_clear()
        started = time.process_time()
        vm_types()
        return time.process_time() - started

    # 3 ms measured
    assert min(load_s() for _ in range(5)) < 0.020


def _list_of(vm):
    return next(title for title in LISTS if title in vm.source)


def _rows(file):
    if not file.exists():
        pytest.skip(f"{file.name} is absent")
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
