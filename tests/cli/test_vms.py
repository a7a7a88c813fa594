"""``gpuwise vms``: VM types chosen by GPU, cloud and size, cheapest first."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from command import Answer, gpuwise

from gpuwise.devices.vms import vm_type, vm_types


def shown(*args: str, folder: Path) -> list[dict[str, Any]]:
    """What the command lists as JSON; it must succeed without a word of complaint."""
    answer = gpuwise("vms", *args, "-o", "json", folder=folder)
    assert (answer.code, answer.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(answer.out)
    return found


def test_all_are_listed_cheapest_first(tmp_path: Path) -> None:
    rows = shown(folder=tmp_path)
    assert [row["name"] for row in rows] == list(vm_types())
    assert [row["usd_per_hour"] for row in rows] == sorted(row["usd_per_hour"] for row in rows)


def test_a_row_has_the_figures_and_their_source(tmp_path: Path) -> None:
    [row] = shown("NC24s_v3", folder=tmp_path)
    vm = vm_type("Standard_NC24s_v3")
    assert (row["name"], row["cloud"], row["gpu"], row["gpus"], row["vcpus"]) == (vm.name, "azure", "V100", 4, 24)
    assert (row["memory_bytes"], row["region"], row["source"]) == (vm.memory_bytes, vm.region, vm.source)
    assert (row["usd_per_hour"], row["usd_per_hour_spot"]) == (vm.usd_per_hour, vm.usd_per_hour_spot)
    assert row["usd_per_gpu_hour"] == pytest.approx(vm.usd_per_hour / 4)


def test_filters_narrow_each_other(tmp_path: Path) -> None:
    rows = shown("--gpu", "V100,Tesla T4", "--cloud", "azure", "--gpus-at-least", "4", folder=tmp_path)
    assert [row["name"] for row in rows] == ["Standard_NC64as_T4_v3", "Standard_NC24s_v3", "Standard_NC24rs_v3"]
    assert shown("NC6", "--gpu", "V100", folder=tmp_path) == []
    assert len(shown("--cloud", "aws,azure", folder=tmp_path)) == len(vm_types())


def test_types_by_name_come_once_and_cheapest_first(tmp_path: Path) -> None:
    rows = shown("p4d.24xlarge", "NC6", "Standard_NC6", folder=tmp_path)
    assert [row["name"] for row in rows] == ["Standard_NC6", "p4d.24xlarge"]


def test_csv_and_tables_show_the_same_types(tmp_path: Path) -> None:
    piped: Answer = gpuwise("vms", "--gpu", "K80", folder=tmp_path)
    names = [row["name"] for row in csv.DictReader(io.StringIO(piped.out))]
    assert names == list(vm_types(gpu="K80"))
    for output in ("table", "wide"):
        table = gpuwise("vms", "--gpu", "K80", "-o", output, folder=tmp_path).out
        assert all(name in table for name in names)
        assert ("skypilot-catalog" in table) == (output == "wide")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["NC7"], "unknown VM type 'NC7'; did you mean NC6"),
        (["--gpu", "V100,A10O"], "unknown GPU type 'A10O'; did you mean A10"),
        (["--cloud", "azur"], "unknown cloud 'azur'; did you mean azure"),
        (["--gpus-at-least", "0"], "--gpus-at-least"),
    ],
)
def test_what_is_not_there_is_told_in_words(args: list[str], words: str, tmp_path: Path) -> None:
    answer = gpuwise("vms", *args, folder=tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert "Traceback" not in answer.err
