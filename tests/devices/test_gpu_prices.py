"""The prices in the catalogue are the cheapest whole VMs of the price lists they name."""

import csv
import re

import pytest

from gpuwise.devices.catalogue import gpu_type, gpu_types

CURRENT = {"AWS v7": "aws_gpu_vms_v7.csv", "Azure v8": "azure_gpu_vms_v8.csv"}
FROZEN = {"Azure v4": "azure_gpu_vms_v4.csv"}

# Sizes with a part of a GPU that the lists count as one: a sixth to a third of an A10, an eighth to a half of an MI25.
PART_OF_A_GPU = re.compile(r"Standard_NV(6|12|18)ads_A10_v5|Standard_NV(4|8|16)as_v4")
PROMOTION = re.compile(r"_Promo$")
# Azure's names for the boards the lists call H100 and A100-80GB.
BOARDS = [(re.compile(r"NC\d+adi?s_H100_v5"), "H100-NVL"), (re.compile(r"NC\d+ads_A100_v4"), "A100-PCIe-80GB")]


def test_prices_are_the_cheapest_whole_vm(shared_data):
    expected = {**_cheapest(shared_data, FROZEN), **_cheapest(shared_data, CURRENT)}
    expected["P4"] = _cheapest_gpu_alone(shared_data, "P4")
    priced = {name: gpu.usd_per_hour for name, gpu in gpu_types().items() if gpu.usd_per_hour is not None}
    assert priced == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("title", "file"), [*CURRENT.items(), *FROZEN.items()])
def test_a_price_is_in_the_list_it_names(shared_data, title, file):
    listed = _cheapest(shared_data, {title: file})
    for gpu in gpu_types().values():
        if title in (gpu.source_of("usd_per_hour") or ""):
            assert gpu.usd_per_hour == pytest.approx(listed[gpu.name], abs=5e-7)


def test_a_price_says_which_list_it_is_from():
    for gpu in gpu_types().values():
        if gpu.usd_per_hour is not None:
            assert "skypilot-catalog f2624ac (2026-08-22)" in gpu.source_of("usd_per_hour")
    assert "host VM is priced apart" in gpu_type("P4").source_of("usd_per_hour")


def _cheapest(shared_data, lists):
    cheapest: dict[str, float] = {}
    for file in lists.values():
        for row in _rows(shared_data / "skypilot_catalog" / file):
            if (name := _board(row)) and row["Price"]:
                usd_per_hour = float(row["Price"]) / float(row["AcceleratorCount"])
                cheapest[name] = min(usd_per_hour, cheapest.get(name, usd_per_hour))
    return cheapest


def _board(row):
    size, listed = row["InstanceType"], row["AcceleratorName"]
    if PROMOTION.search(size) or PART_OF_A_GPU.fullmatch(size):
        return None
    named = next((board for pattern, board in BOARDS if pattern.search(size)), listed)
    known = {name for gpu in gpu_types().values() for name in (gpu.name, *gpu.aliases)}
    return gpu_type(named).name if named in known or named == "T4g" else None


def _cheapest_gpu_alone(shared_data, name):
    rows = _rows(shared_data / "skypilot_catalog" / "gcp_gpu_vms_v8.csv")
    return min(float(row["Price"]) / float(row["AcceleratorCount"]) for row in rows if row["AcceleratorName"] == name)


def _rows(file):
    if not file.exists():
        pytest.skip(f"{file.name} is absent")
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
