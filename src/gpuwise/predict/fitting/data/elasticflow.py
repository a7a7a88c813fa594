"""ElasticFlow's measurements: iterations per second of one global batch split over 1 to 64 GPUs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.fitting.data.tables import named_columns

GPUS_PER_NODE: Mapping[str, int] = {"T4": 4}
"""Nodes of the testbed had eight A100; the T4 figures come from nodes of four."""
PREFIX = "throughputs_"


def steps(data: Path, gpus_per_node: Mapping[str, int] = GPUS_PER_NODE) -> dict[str, NDArray[Any]]:
    """Step times; jobs are packed onto the fewest nodes, of eight GPUs by default.

    Columns: ``model``, ``gpu``, ``global_batch``, ``batch`` (per GPU), ``gpus``, ``nodes``, ``step_time_s``. Sizes that
    were not measured (empty, nan or 0) are left out.
    """
    rows = [
        row
        for path in sorted((data / "elasticflow" / "scheduler").glob(f"{PREFIX}*/*.csv"))
        for row in _rows(path, path.parent.name.removeprefix(PREFIX), gpus_per_node)
    ]
    names = ("model", "gpu", "global_batch", "batch", "gpus", "nodes", "step_time_s")
    return named_columns(names, rows, data / "elasticflow" / "scheduler")


def _rows(path: Path, gpu: str, gpus_per_node: Mapping[str, int]) -> Iterator[tuple[Any, ...]]:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            whole = _number(row.pop("global_batch_size", None))
            for gpus, text in row.items():
                rate = _number(text)
                if rate > 0 and whole > 0 and str(gpus).isdigit():
                    nodes = -(-int(gpus) // gpus_per_node.get(gpu, 8))
                    yield path.stem, gpu, whole, whole / int(gpus), float(gpus), float(nodes), 1.0 / rate


def _number(text: str | None) -> float:
    """The number in a cell; nan where it is empty."""
    try:
        return float(text or "nan")
    except ValueError:
        return np.nan
