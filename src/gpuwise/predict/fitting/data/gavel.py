"""Gavel's measurements: steps per second of each job alone, by GPU type, number of GPUs and placement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import named_columns, read_json

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
    rows = [row for place, jobs in read_json(path).items() for row in _rows(place, jobs)]
    return named_columns(("model", "gpu", "batch", "gpus", "nodes", "step_time_s"), rows, path)


def job_of(key: str) -> tuple[str, int]:
    """The title of a job and its number of GPUs, from a key like ``('LM (batch size 5)', 1)``."""
    try:
        title, gpus = ast.literal_eval(key)
        return str(title), int(gpus)
    except (ValueError, SyntaxError, TypeError) as error:
        raise PredictionError(f"gavel's job {key!r}; one like ('LM (batch size 5)', 1) is expected") from error


def rate_of(given: Any) -> float:
    """A rate as the file has it; 0 where it has none."""
    return float(given) if isinstance(given, (int, float)) and np.isfinite(given) else 0.0


def _rows(place: str, jobs: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, float, float, float, float]]:
    spread = place.endswith(SPREAD)
    for key, rates in jobs.items():
        title, gpus = job_of(key)
        rate = rate_of(rates.get(ALONE))
        if rate <= 0.0 or (spread and gpus == 1):
            continue
        named = _NAMED.match(title)
        model, batch = (named["model"], float(named["batch"])) if named else (title, np.nan)
        yield model, place.removesuffix(SPREAD), batch, float(gpus), float(gpus if spread else 1), gpus / rate
