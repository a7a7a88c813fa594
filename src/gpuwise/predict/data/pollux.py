"""Pollux' measurements on T4 nodes of four GPUs: step time by placement and batch, and validation curves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def steps(data: Path) -> dict[str, NDArray[Any]]:
    """Step times of synchronous data-parallel training.

    Columns: ``model``, ``gpu``, ``batch`` (per GPU), ``gpus``, ``nodes``, ``placement`` (GPUs on each node where
    that is known, else nodes x GPUs), ``step_time_s``, ``sync_time_s``.
    """
    rows = [row for folder in _models(data) for row in _rows(folder)]
    names = ("model", "gpu", "batch", "gpus", "nodes", "placement", "step_time_s", "sync_time_s")
    return {name: np.asarray(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _models(data: Path) -> list[Path]:
    return sorted(path.parent for path in (data / "pollux" / "traces").glob("*/placements.csv"))


def _rows(folder: Path) -> Iterator[tuple[str, str, float, float, float, str, float, float]]:
    import polars as pl

    placed = pl.read_csv(folder / "placements.csv", schema_overrides={"placement": pl.String})
    for row in placed.rows(named=True):
        gpus = sum(int(digit) for digit in row["placement"])
        where = (float(gpus), float(len(row["placement"])), row["placement"])
        yield folder.name, "T4", float(row["local_bsz"]), *where, row["step_time"], row["sync_time"]
    scaled = folder / "scalability.csv"
    for row in pl.read_csv(scaled).rows(named=True) if scaled.exists() else []:
        where = (float(row["num_replicas"]), float(row["num_nodes"]), f"{row['num_nodes']}x{row['num_replicas']}")
        yield folder.name, "T4", float(row["local_bsz"]), *where, row["step_time"], row["sync_time"]


def curves(data: Path) -> dict[str, NDArray[Any]]:
    """One row for each training run: the validation metric after each epoch.

    Columns: ``workload``, ``run``, ``batch`` (the run's first batch size), ``steps`` (an array for each run:
    epochs; steps per epoch change in these runs, as their batch grows), ``iterations`` (an array: steps done by
    then) and ``values`` (an array: the metric, which rises for some workloads and falls for others).
    """
    import polars as pl

    paths = sorted((data / "pollux" / "traces").glob("*/validation-*.csv"))
    tables = [pl.read_csv(path) for path in paths]
    return {
        "workload": np.asarray([path.parent.name for path in paths]),
        "run": np.asarray([f"{path.parent.name}/{path.stem}" for path in paths]),
        "batch": np.asarray([float(path.stem.split("-")[1]) for path in paths]),
        "steps": _arrays([np.arange(1.0, len(table) + 1.0) for table in tables]),
        "iterations": _arrays([table["iteration"].to_numpy() for table in tables]),
        "values": _arrays([table["metric"].to_numpy() for table in tables]),
    }


def _arrays(columns: list[NDArray[Any]]) -> NDArray[Any]:
    made = np.empty(len(columns), dtype=object)
    for number, each in enumerate(columns):
        made[number] = np.asarray(each, dtype=np.float64)
    return made
