"""The time of a training step on a MIG slice, from its time and utilization on the whole GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.devices.mig import mig_profile, mig_profiles
from gpuwise.predict.base import COVERAGE, Bools, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import floats, rows_where, strings
from gpuwise.predict.intervals.conformal import Conformal
from gpuwise.predict.intervals.domain import Domain

NUMBERS = ("gpu_util_frac", "mem_util_frac", "compute_frac", "memory_frac")
# A GPU that is never idle would have an infinite share of the step; utilization is seldom measured better than this.
_UTIL_RANGE = (0.01, 0.97)
_TRAFFIC_RANGE = (0.005, 1.0)
_TYPICAL = {"gpu_util_frac": 0.6, "mem_util_frac": 0.1}  # taken where nothing is known
_LEAST_SLOWDOWN = 0.95  # a slice is not faster than the whole GPU, but for noise
_NOISE = 0.1  # in log time: where the loss turns from squares to absolute values
# log of the weight of traffic, its power, log of the weight of compute, log(sharpness − 1), logit of memory's share:
# few models are known, so each has a prior at a plain value, with the strength below.
_START = np.array([-1.0, 0.7, -2.0, 0.0, 0.0])
_STRENGTH = np.array([0.1, 0.3, 0.3, 0.3, 0.3])


def slice_fractions(gpu: str, profiles: Sequence[str]) -> dict[str, Floats]:
    """The columns ``compute_frac`` and ``memory_frac`` of MIG profiles: their part of the largest profile's resources.

    Compute is counted in SMs where they are published, else in compute slices; memory (and its bandwidth) in slices.
    """
    whole = max(mig_profiles(gpu), key=lambda profile: (profile.compute_slices, profile.memory_slices))
    chosen = [mig_profile(gpu, name) for name in profiles]
    compute = [
        each.sms / whole.sms if each.sms and whole.sms else each.compute_slices / whole.compute_slices
        for each in chosen
    ]
    memory = [each.memory_slices / whole.memory_slices for each in chosen]
    return {"compute_frac": np.array(compute), "memory_frac": np.array(memory)}


class MigTime(Predictor):
    """The time of a training step on a slice of a GPU, in seconds.

    Columns: ``step_time_s`` on the whole GPU; ``gpu_util_frac``, the share of time in which the whole GPU was busy;
    ``mem_util_frac``, the share of its memory bandwidth in use (NaN in either where unknown: a typical value is taken
    and the interval is wider); ``compute_frac`` and ``memory_frac`` of the slice, see `slice_fractions`; ``model`` for
    `fit` alone, which leaves whole models out to calibrate the interval.

    A step is host work that no slice changes, beside GPU work that grows on a slice (all relative to the host work):

        g(slice) = c · u/(1 − u) / compute_frac  +  b · m^k / (memory_frac^w · compute_frac^(1 − w))
        t(slice) = t(whole) · (1 + g(slice)^p)^(1/p) / (1 + g(whole)^p)^(1/p)

    u/(1 − u) is Amdahl's ratio of busy to idle time; p = 1 is host and GPU one after the other, a large p side by side.
    """

    def __init__(self) -> None:
        pass

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns from times on slices."""
        measured = np.asarray(y, dtype=np.float64)
        table = {name: floats(X, name) for name in (*NUMBERS, "step_time_s")}
        models = np.asarray(strings(X, "model"))
        self._check(table, measured)
        self.typical_ = _medians(table)
        self.weights_ = _fitted(_filled(table, self.typical_), measured)
        self.domain_ = Domain.of(_filled(table, self.typical_), numbers=NUMBERS)
        self.interval_, self.blind_interval_ = _calibrated(table, measured, models)
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The time on the slice; on the whole GPU it is the time that was given, with no interval."""
        self._check_fitted()
        table = {name: floats(X, name) for name in (*NUMBERS, "step_time_s")}
        self._check(table)
        value = table["step_time_s"] * np.exp(_log_slowdown(self.weights_, _filled(table, self.typical_)))
        blind = _unknown(table)
        inside = self.domain_.contains(table) & ~blind
        spread = _spread(table)
        known = self.interval_.around(value, coverage, inside, spread)
        unknown = self.blind_interval_.around(value, coverage, inside, spread)
        low, high = np.where(blind, unknown.low, known.low), np.where(blind, unknown.high, known.high)
        least = np.minimum(value, table["step_time_s"] * _LEAST_SLOWDOWN)
        return Estimates(value, np.maximum(low, least), high, inside)

    @staticmethod
    def _check(table: dict[str, Floats], measured: Floats | None = None) -> None:
        for name in ("compute_frac", "memory_frac"):
            wrong = table[name][~((table[name] > 0) & (table[name] <= 1))]
            if len(wrong):
                raise PredictionError(f"{name} is {wrong[0]}; it must be above 0 and at most 1, see slice_fractions")
        for name, column in (("step_time_s", table["step_time_s"]), ("the time on a slice", measured)):
            if column is not None and np.any(~(column > 0)):
                raise PredictionError(f"{name} is {column[~(column > 0)][0]}; it must be above 0")


def _calibrated(table: dict[str, Floats], measured: Floats, models: NDArray[Any]) -> tuple[Conformal, Conformal]:
    """Residuals of models left out one at a time: with their utilization known, and without."""
    if len(set(models)) < 2:
        raise PredictionError("MIG times of at least two models are needed: one is left out to see how far off it is")
    known: list[Floats] = []
    blind: list[Floats] = []
    for name in sorted(set(models)):
        out = (models == name) & (_spread(table) > 0)
        seen, asked = rows_where(table, models != name), rows_where(table, out)
        typical = _medians(seen)
        weights = _fitted(_filled(seen, typical), measured[models != name])
        truth = np.log(measured[out] / asked["step_time_s"])
        hidden = {**asked, **{column: np.full(out.sum(), np.nan) for column in typical}}
        for kept, shown in ((known, asked), (blind, hidden)):
            kept.append((truth - _log_slowdown(weights, _filled(shown, typical))) / _spread(asked))
    return Conformal(np.concatenate(known)), Conformal(np.concatenate(blind))


def _medians(table: dict[str, Floats]) -> dict[str, float]:
    known = {name: table[name][np.isfinite(table[name])] for name in _TYPICAL}
    return {name: float(np.median(known[name])) if len(known[name]) else usual for name, usual in _TYPICAL.items()}


def _filled(table: dict[str, Floats], typical: dict[str, float]) -> dict[str, Floats]:
    return {**table, **{name: np.where(np.isnan(table[name]), usual, table[name]) for name, usual in typical.items()}}


def _unknown(table: dict[str, Floats]) -> Bools:
    return np.asarray(np.isnan(table["gpu_util_frac"]) | np.isnan(table["mem_util_frac"]))


def _spread(table: dict[str, Floats]) -> Floats:
    """How much slower a slice can be, in log time: errors grow with it, and there are none at the whole GPU."""
    return -np.log(np.sqrt(table["compute_frac"] * table["memory_frac"]))


def _log_slowdown(weights: Floats, table: dict[str, Floats]) -> Floats:
    """log(t(slice) / t(whole)) by the formula in `MigTime`."""
    busy = np.clip(table["gpu_util_frac"], *_UTIL_RANGE)
    traffic = np.clip(table["mem_util_frac"], *_TRAFFIC_RANGE)
    compute = np.exp(weights[2]) * busy / (1.0 - busy)
    memory = np.exp(weights[0]) * (traffic / _TYPICAL["mem_util_frac"]) ** weights[1]
    sharpness = 1.0 + np.exp(weights[3])
    share = 1.0 / (1.0 + np.exp(-weights[4]))
    slower = compute / table["compute_frac"]
    slower = slower + memory / (table["memory_frac"] ** share * table["compute_frac"] ** (1.0 - share))
    longer, whole = np.log1p(slower**sharpness), np.log1p((compute + memory) ** sharpness)
    return np.asarray((longer - whole) / sharpness)


def _fitted(table: dict[str, Floats], measured: Floats) -> Floats:
    from scipy.optimize import least_squares

    truth = np.log(measured / table["step_time_s"])

    def misfit(weights: Floats) -> Floats:
        return np.concatenate([(_log_slowdown(weights, table) - truth) / _NOISE, (weights - _START) * _STRENGTH])

    return np.asarray(least_squares(misfit, _START, loss="soft_l1").x, dtype=np.float64)
