"""Intervals from few groups: rows of one architecture err alike, so many rows of few know less than it seems."""

from __future__ import annotations

import numpy as np

from gpuwise.predict.base import Floats

TAIL = 0.95
"""The end of the usual interval, where the factor is taken."""


def spread_of_few(groups: int) -> float:
    """How much wider an interval must be that few groups stand behind: Student's quantile over the normal one."""
    from scipy.special import ndtri, stdtrit  # takes a while to import, and only a fit needs it

    return float(stdtrit(max(groups - 1, 1), TAIL) / ndtri(TAIL))


def widened(residuals: Floats, groups: int) -> Floats:
    """Residuals spread about their middle as few groups ask for; those of a single group stay as they are."""
    if groups < 2:
        return residuals
    middle = np.median(residuals)
    return np.asarray(middle + spread_of_few(groups) * (residuals - middle))
