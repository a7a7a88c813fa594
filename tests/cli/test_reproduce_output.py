"""What ``gpuwise reproduce`` prints: how many figures are met, and each remark once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import gpuwise

from gpuwise.experiments import registry
from gpuwise.experiments.rows import Row

ROWS = [
    Row("priority", "time", "s", 100.0, 101.0, 0.05, "the mix is assumed"),
    Row("priority", "wait", "s", 100.0, 150.0, 0.05, "the mix is assumed"),
    Row("priority", "jobs", "jobs", None, 7.0, note="not published"),
]


@pytest.fixture(autouse=True)
def experiment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUWISE_DATA", str(tmp_path))
    monkeypatch.setattr(registry, "EXPERIMENTS", {"priority": lambda _: ROWS})


def test_the_table_begins_with_how_many_are_met_and_ends_with_the_remarks(tmp_path: Path) -> None:
    shown = gpuwise("reproduce", "priority", "-o", "table", folder=tmp_path).out
    assert shown.splitlines()[0].strip() == "priority: 1 of 2 published figures are met"
    assert shown.count("the mix is assumed") == 1
    assert shown.splitlines()[-2:] == ["1: the mix is assumed", "2: not published"]
    rows = [line.split() for line in shown.splitlines() if line.strip().startswith(("time", "wait", "jobs"))]
    assert [(row[0], row[-2], row[-1]) for row in rows] == [
        ("time", "yes", "1"),
        ("wait", "no", "1"),
        ("jobs", "-", "2"),
    ]


def test_json_has_each_remark_in_its_row(tmp_path: Path) -> None:
    rows = json.loads(gpuwise("reproduce", "all", "-o", "json", folder=tmp_path).out)
    assert [(row["met"], row["note"]) for row in rows] == [(row.met, row.note) for row in ROWS]
