"""Tables as others publish them: CSV and JSON files in, named columns out."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.core.errors import UnknownNameError
from gpuwise.predict.base import PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.time.gpu_rates import is_known

log = logging.getLogger("gpuwise.predict.fitting.data")


@cache
def log_left_out(what: str) -> None:
    """Logs once which data are left out and why: to stderr, unless logging is configured otherwise."""
    log.warning("left out: %s", what)


def read_table(path: Path, positive: Sequence[str], numbers: Sequence[str] = (), names: Sequence[str] = ()) -> Any:
    """Columns of a CSV file as a polars frame: numbers above 0, other numbers, and text; other columns are ignored.

    A row that lacks one of them is left out, which is logged.
    """
    import polars as pl

    if not path.is_file():
        raise PredictionError(f"there is no table {path}")
    try:
        whole = pl.read_csv(path, infer_schema=False, truncate_ragged_lines=True)
    except pl.exceptions.PolarsError as error:
        raise PredictionError(f"cannot read the table {path}: {str(error).splitlines()[0]}") from error
    wanted = [*names, *positive, *numbers]
    if missing := [name for name in wanted if name not in whole.columns]:
        raise PredictionError(f"{path} has no column {', '.join(missing)}; it has {', '.join(whole.columns)}")
    parsed = [pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in (*positive, *numbers)]
    kept = whole.select(*names, *parsed).drop_nulls()
    kept = kept.filter([(pl.col(name) > 0) & pl.col(name).is_finite() for name in positive] or [pl.lit(value=True)])
    if len(kept) < len(whole):
        wanted_values = "values in " + ", ".join(wanted) + (f" (above 0 in {', '.join(positive)})" if positive else "")
        log_left_out(f"{len(whole) - len(kept)} of {len(whole)} rows of {path}, which lack {wanted_values}")
    return kept


def read_rows(
    path: Path, positive: Sequence[str], numbers: Sequence[str] = (), names: Sequence[str] = ("model",)
) -> list[dict[str, Any]]:
    """The rows of `read_table`; at least one."""
    rows: list[dict[str, Any]] = read_table(path, positive, numbers, names).rows(named=True)
    if not rows:
        raise PredictionError(f"the table {path} has no rows to use")
    return rows


def read_json(path: Path) -> Any:
    """A JSON document."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PredictionError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise PredictionError(f"{path} is not JSON: {error}") from error


def read_available(
    readers: Sequence[Callable[[Path], dict[str, NDArray[Any]]]], data: Path
) -> list[dict[str, NDArray[Any]]]:
    """The tables that can be read, at least one; what is missing of the others is logged."""
    tables, missing = [], []
    for read in readers:
        try:
            tables.append(read(data))
        except PredictionError as error:
            missing.append(str(error))
    if not tables:
        raise PredictionError("; ".join(missing))
    for each in missing:
        log_left_out(each)
    return tables


def log_unknown_models(data: str, models: Collection[str]) -> None:
    """Logs which models of a data set are left out, since no graph of them can be made."""
    if models:
        log_left_out(
            f"{', '.join(sorted(models))} of {data}: no such network is known to gpuwise, torchvision or timm here"
        )


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Rows with the same names as columns."""
    if not rows:
        raise PredictionError("a table without rows")
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def named_columns(names: Sequence[str], rows: Sequence[Sequence[Any]], where: Path) -> dict[str, NDArray[Any]]:
    """Rows as columns of these names; ``where`` is their file, for the error if there are none."""
    if not rows:
        raise PredictionError(f"nothing measured in {where}")
    return {name: np.asarray(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def stacked(tables: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Tables below one another, with the columns that all of them have."""
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables]) for name in shared}


def on_known_gpus(table: Mapping[str, Any]) -> dict[str, Any]:
    """The rows on GPUs with rates in the catalogue; the others are left out, which is logged."""
    gpus = [str(gpu) for gpu in table["gpu"]]
    known = {gpu: _has_rates(gpu) for gpu in sorted(set(gpus))}
    if unknown := [gpu for gpu, there in known.items() if not there]:
        log_left_out(f"times on GPUs that the catalogue has no rates of: {', '.join(unknown)} (see gpuwise gpus)")
    if not any(known.values()):
        raise PredictionError(f"no times on a GPU that the catalogue has rates of, only on {', '.join(unknown)}")
    return rows_where(table, np.asarray([known[gpu] for gpu in gpus], dtype=np.bool_))


def _has_rates(gpu: str) -> bool:
    try:
        return is_known(gpu)
    except UnknownNameError:
        return False
