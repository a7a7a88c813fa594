"""Calibrated intervals: how far measurements were from predictions on data that the predictor had not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import Bools, Estimates, Floats, PredictionError, packable
from gpuwise.predict.columns import rows_where

DIGITS = 6
TAIL = 0.95
"""The end of the usual interval, where the factor of `spread_of_few` is taken."""
MOST_KEPT = 400
"""More residuals than these do not improve the quantiles that are used."""


@packable
class Conformal:
    """Split conformal intervals for positive quantities, in log space, each side by itself.

    A residual is ``log(measured / predicted)`` divided by a scale, larger where the prediction is harder (1 where
    nothing is known of that). The interval at coverage c is from the (1 − c)/2 to the (1 + c)/2 quantile of residuals
    of rows left out of the fit, with the correction for their finite number: with n residuals the upper end is the
    ⌈(n + 1)(1 + c)/2⌉-th smallest, the lower end likewise from below. Residuals must come from predictions for data as
    new as those that will be asked for: leave whole families out if families will be new.
    """

    def __init__(self, residuals: ArrayLike) -> None:
        kept = np.sort(np.asarray(residuals, dtype=np.float64))
        kept = kept[np.isfinite(kept)]
        if not len(kept):
            raise PredictionError("an interval needs at least one residual")
        self.count = len(kept)
        if self.count > MOST_KEPT:
            kept = np.quantile(kept, np.linspace(0.0, 1.0, MOST_KEPT))
        self.residuals = np.round(kept, DIGITS)

    @classmethod
    def of(cls, measured: ArrayLike, predicted: ArrayLike, scale: ArrayLike = 1.0) -> Self:
        """From measurements and the predictions that were made without them."""
        return cls(log_ratio(measured, predicted) / np.asarray(scale, dtype=np.float64))

    def bounds(self, coverage: float) -> tuple[float, float]:
        """The two ends in log space, for a scale of 1."""
        if not 0.0 < coverage < 1.0:
            raise PredictionError(f"a coverage of {coverage}; it must be between 0 and 1, like 0.9")
        rank = np.ceil((self.count + 1) * (1.0 + coverage) / 2.0)  # counted from 1
        level = min(1.0, (rank - 1.0) / max(1.0, self.count - 1.0))
        low, high = np.quantile(self.residuals, [1.0 - level, level])
        return min(float(low), 0.0), max(float(high), 0.0)

    def around(self, value: Floats, coverage: float, in_domain: Bools, scale: ArrayLike = 1.0) -> Estimates:
        """The interval around each prediction."""
        low, high = self.bounds(coverage)
        wide = np.asarray(scale, dtype=np.float64)
        return Estimates(value, value * np.exp(low * wide), value * np.exp(high * wide), in_domain)

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        return {"residuals": self.residuals.tolist(), "count": self.count}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        made = cls(document["residuals"])
        made.count = document["count"]
        return made


def log_ratio(measured: ArrayLike, predicted: ArrayLike) -> Floats:
    """log(measured / predicted); both must be above 0."""
    top, bottom = np.asarray(measured, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if np.any(top <= 0) or np.any(bottom <= 0):
        raise PredictionError("measured and predicted values must be above 0")
    return np.asarray(np.log(top) - np.log(bottom))


def folds(groups: Sequence[Any] | NDArray[Any], count: int, seed: int = 0) -> Iterator[Bools]:
    """Masks of the rows to leave out, so that each group is left out once and groups are never split.

    Groups are dealt out by size, largest first, to the fold with the fewest rows; ties in an order drawn by the seed.
    """
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(index)
    drawn = np.random.default_rng(seed).permutation(len(names))
    order = drawn[np.argsort(-sizes[drawn], kind="stable")]
    fold_of = np.zeros(len(names), dtype=np.int64)
    filled = np.zeros(min(count, len(names)))
    for group in order:
        fold_of[group] = np.argmin(filled)
        filled[fold_of[group]] += sizes[group]
    for fold in range(len(filled)):
        yield fold_of[index] == fold


def left_out(
    fit_predict: Callable[[Mapping[str, Any], Floats, Mapping[str, Any]], Floats],
    X: Mapping[str, Any],  # noqa: N803
    y: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    count: int = 5,
    seed: int = 0,
) -> Floats:
    """A prediction for each row, made without its group: ``fit_predict(X_fit, y_fit, X_left_out)`` for each fold."""
    measured = np.asarray(y, dtype=np.float64)
    predicted = np.full(len(measured), np.nan)
    for out in folds(groups, count, seed):
        predicted[out] = fit_predict(rows_where(X, ~out), measured[~out], rows_where(X, out))
    return predicted


def spread_of_few(groups: int) -> float:
    """How much wider an interval from few groups must be: Student's quantile over the normal one."""
    from scipy.special import ndtri, stdtrit  # takes a while to import, and only a fit needs it

    return float(stdtrit(max(groups - 1, 1), TAIL) / ndtri(TAIL))


def widened(residuals: Floats, groups: int) -> Floats:
    """Residuals spread about their median by `spread_of_few`, as rows of one group err alike; one group stays as is."""
    if groups < 2:
        return residuals
    middle = np.median(residuals)
    return np.asarray(middle + spread_of_few(groups) * (residuals - middle))
