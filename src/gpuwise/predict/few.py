"""Intervals from few groups: rows of one architecture err alike, so many rows of few know less than it seems."""

from __future__ import annotations

import numpy as np

from gpuwise.predict.base import Floats

TAIL = 0.95
"""The end of the usual interval, where the factor is taken."""


def widened(residuals: Floats, groups: int) -> Floats:
    """Residuals spread about their middle as much as Student's t with so many groups is wider than the normal curve."""
    from scipy.special import ndtri, stdtrit  # takes a while to import, and only a fit needs it

    if groups < 2:
        return residuals
    factor = float(stdtrit(groups - 1, TAIL) / ndtri(TAIL))
    middle = np.median(residuals)
    return np.asarray(middle + factor * (residuals - middle))
