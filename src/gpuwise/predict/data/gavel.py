"""Gavel's measurements: steps per second of each job alone, by GPU type, number of GPUs and placement."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError

ALONE = "null"
SPREAD = "_unconsolidated"
_NAMED = re.compile(r"^(?P<model>.+?) \(batch size (?P<batch>\d+)\)$")


def isolated(data: Path, name: str = "simulation_throughputs.json") -> dict[str, NDArray[Any]]:
    """Step times of jobs that have their GPUs to themselves.

    Columns: ``model``, ``gpu``, ``batch`` (per GPU; nan where the job's name has none), ``gpus``, ``nodes`` (1 where
    the placement is consolidated, else one GPU in each), ``step_time_s``. The file has the steps of all workers
    together, so a step takes workers / throughput. What does not fit (0) is left out, and so is one GPU
    "spread" over nodes, which repeats one GPU.
    """
    path = data / "gavel" / name
    try:
        tables = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PredictionError(f"cannot read gavel's throughputs from {path}: {error}") from error
    rows = [row for place, jobs in tables.items() for row in _rows(place, jobs)]
    names = ("model", "gpu", "batch", "gpus", "nodes", "step_time_s")
    return {name: np.asarray(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _rows(place: str, jobs: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, float, float, float, float]]:
    spread = place.endswith(SPREAD)
    for key, rates in jobs.items():
        title, gpus = ast.literal_eval(key)
        rate = rates.get(ALONE) or 0.0
        if rate <= 0.0 or (spread and gpus == 1):
            continue
        named = _NAMED.match(title)
        model, batch = (named["model"], float(named["batch"])) if named else (title, np.nan)
        yield model, place.removesuffix(SPREAD), batch, float(gpus), float(gpus if spread else 1), gpus / rate
