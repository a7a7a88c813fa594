"""Columns that may be missing, and columns that must hold numbers a model can use."""

from __future__ import annotations

import numpy as np

from gpuwise.predict.base import Columns, Floats, PredictionError, floats, strings


def has(X: Columns, name: str) -> bool:  # noqa: N803
    """Whether there is a column of that name; frames of different libraries raise different errors."""
    try:
        X[name]
    except Exception:
        return False
    return True


def floats_or(X: Columns, name: str, count: int, otherwise: float) -> Floats:  # noqa: N803
    """A column as numbers, or so many times the same number."""
    return floats(X, name) if has(X, name) else np.full(count, otherwise)


def strings_or(X: Columns, name: str, count: int, otherwise: str) -> list[str]:  # noqa: N803
    """A column as text, or so many times the same text."""
    return strings(X, name) if has(X, name) else [otherwise] * count


def sized(X: Columns, name: str, least: float | None = None) -> Floats:  # noqa: N803
    """A column of finite numbers above 0, or from ``least`` on; else an error with the column and the value."""
    column = np.atleast_1d(floats(X, name))
    usable(column, f"column {name!r}", least)
    return column


def usable(column: Floats, what: str, least: float | None = None) -> None:
    """Refuses numbers that are not finite, or not above 0 (below ``least``, if given)."""
    bad = ~np.isfinite(column) | ~(column > 0 if least is None else column >= least)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        wanted = "above 0" if least is None else f"at least {least:g}"
        raise PredictionError(f"{what} is {column[row]:g} in row {row}; it must be finite and {wanted}")
