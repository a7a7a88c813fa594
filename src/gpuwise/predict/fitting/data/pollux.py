"""Pollux' measurements on T4 nodes of four GPUs: step time by placement and batch, and validation curves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import log_left_out, named_columns, read_table

PLACED, SCALED = "placements.csv", "scalability.csv"


def steps(data: Path) -> dict[str, NDArray[Any]]:
    """Step times of synchronous data-parallel training.

    Columns: ``model``, ``gpu``, ``batch`` (per GPU), ``gpus``, ``nodes``, ``placement`` (GPUs on each node where
    that is known, else nodes x GPUs), ``step_time_s``, ``sync_time_s``.
    """
    rows = [row for folder in _models(data) for row in _rows(folder)]
    names = ("model", "gpu", "batch", "gpus", "nodes", "placement", "step_time_s", "sync_time_s")
    return named_columns(names, rows, data / "pollux" / "traces")


def _models(data: Path) -> list[Path]:
    folder = data / "pollux" / "traces"
    return sorted({path.parent for name in (PLACED, SCALED) for path in folder.glob(f"*/{name}")})


def _rows(folder: Path) -> Iterator[tuple[str, str, float, float, float, str, float, float]]:
    for row in _table(folder / PLACED, ("local_bsz", "step_time"), ("placement",)):
        if not row["placement"].isdigit():
            log_left_out(
                f"placement {row['placement']!r} of {folder / PLACED}: it must be the GPUs on each node, like 44"
            )
            continue
        gpus = sum(int(digit) for digit in row["placement"])
        where = (float(gpus), float(len(row["placement"])), row["placement"])
        yield folder.name, "T4", row["local_bsz"], *where, row["step_time"], row["sync_time"]
    for row in _table(folder / SCALED, ("num_nodes", "num_replicas", "local_bsz", "step_time")):
        where = (row["num_replicas"], row["num_nodes"], f"{row['num_nodes']:g}x{row['num_replicas']:g}")
        yield folder.name, "T4", row["local_bsz"], *where, row["step_time"], row["sync_time"]


def _table(path: Path, positive: tuple[str, ...], names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The rows of a file, none where it is not there: each model has one, or the other, or both."""
    return list(read_table(path, positive, ("sync_time",), names).rows(named=True)) if path.exists() else []


def curves(data: Path) -> dict[str, NDArray[Any]]:
    """One row for each training run: the validation metric after each epoch.

    Columns: ``workload``, ``run``, ``batch`` (the run's first batch size), ``steps`` (an array for each run:
    epochs; steps per epoch change in these runs, as their batch grows), ``iterations`` (an array: steps done by
    then) and ``values`` (an array: the metric, which rises for some workloads and falls for others).
    """
    folder = data / "pollux" / "traces"
    found = {path: read_table(path, ("iteration",), ("metric",)) for path in sorted(folder.glob("*/validation-*.csv"))}
    paths, tables = [path for path in found if len(found[path])], [table for table in found.values() if len(table)]
    if not paths:
        raise PredictionError(f"no training runs in {folder}: files MODEL/validation-BATCH.csv are expected")
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
