"""Tables as others publish them: CSV files in, named columns out."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    if not path.is_file():
        raise PredictionError(f"there is no table {path}; $GPUWISE_DATA must name the folder of all data sets")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Rows with the same names as columns."""
    if not rows:
        raise PredictionError("a table without rows")
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def stacked(tables: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Tables below one another, with the columns that all of them have."""
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables]) for name in shared}
