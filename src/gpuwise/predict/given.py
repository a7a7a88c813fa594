"""Columns that may be missing."""

from __future__ import annotations

import numpy as np

from gpuwise.predict.base import Columns, Floats, floats


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
