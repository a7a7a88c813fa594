"""Reading columns: as numbers or text, optional ones, and those that must be above 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Bools, Columns, Floats, PredictionError


def floats(X: Columns, name: str) -> Floats:  # noqa: N803
    """A column as numbers."""
    try:
        return np.asarray(X[name], dtype=np.float64)
    except (KeyError, ValueError, TypeError) as error:
        raise PredictionError(f"column {name!r} is needed, with numbers in it ({error})") from error


def strings(X: Columns, name: str) -> list[str]:  # noqa: N803
    """A column as text."""
    try:
        return [str(value) for value in X[name]]
    except KeyError as error:
        raise PredictionError(f"column {name!r} is needed") from error


def rows_where(X: Mapping[str, Any], mask: Bools) -> dict[str, NDArray[Any]]:  # noqa: N803
    """The rows of a dict of columns for which ``mask`` is true; also takes row numbers."""
    return {name: np.asarray(column)[mask] for name, column in X.items()}


def has_column(X: Columns, name: str) -> bool:  # noqa: N803
    """Whether there is a column of that name; frames of different libraries raise different errors."""
    try:
        X[name]
    except Exception:
        return False
    return True


def floats_or(X: Columns, name: str, count: int, otherwise: float) -> Floats:  # noqa: N803
    """A column as numbers, or ``count`` times the same number."""
    return floats(X, name) if has_column(X, name) else np.full(count, otherwise)


def strings_or(X: Columns, name: str, count: int, otherwise: str) -> list[str]:  # noqa: N803
    """A column as text, or ``count`` times the same text."""
    return strings(X, name) if has_column(X, name) else [otherwise] * count


def positive(X: Columns, name: str, least: float | None = None) -> Floats:  # noqa: N803
    """A column of finite numbers above 0, or from ``least`` on; else an error with the column and the value."""
    column = np.atleast_1d(floats(X, name))
    check_positive(column, f"column {name!r}", least)
    return column


def check_positive(column: Floats, what: str, least: float | None = None) -> None:
    """Refuses numbers that are not finite, or not above 0 (below ``least``, if given)."""
    bad = ~np.isfinite(column) | ~(column > 0 if least is None else column >= least)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        wanted = "above 0" if least is None else f"at least {least:g}"
        raise PredictionError(f"{what} is {column[row]:g} in row {row}; it must be finite and {wanted}")
