"""GPU utilization: in how much of a step's time the device is seen at work, from the graph and the time model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import COVERAGE, Bools, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import floats, strings
from gpuwise.predict.intervals.conformal import Conformal, folds, log_ratio, widened
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.trees import Forest

SIZES = ("flops", "kernels", "batch_size", "parameter_bytes", "activation_bytes")
"""From the graph; they and the step time go in as logarithms."""
RANGED = ("step_time_s", "flops", "kernels")
"""Numbers beyond whose range in the fit a job is outside."""
KERNEL_S, SLOWER = 10e-6, 2.0
"""What each kernel takes beside its FLOPs and bytes, for starting and ending; how much longer than both it may take."""
HOST_S = 25e-6
"""What the host needs to launch a kernel: so long the device waits for each, at least."""
LEAST_BUSY, MOST_BUSY = 0.02, 0.95
LEAST_PCT, MOST_PCT = 1.0, 99.5
SEED = 0
SURELY = 2.0
"""By how many standard errors trees must be better than the formula."""

Candidate = tuple[str, dict[str, Any]]
CANDIDATES: tuple[Candidate, ...] = (
    ("formula", {"penalty": 1.0}),
    ("formula", {"penalty": 10.0}),
    ("random_forest", {"max_depth": 3, "min_samples_leaf": 2}),
    ("random_forest", {"max_depth": None, "min_samples_leaf": 2}),
    ("boosting", {"max_depth": 1, "learning_rate": 0.1}),
    ("boosting", {"max_depth": 2, "learning_rate": 0.1}),
)
"""What the grid search chooses from; the trees are of scikit-learn and learn what a formula leaves."""
TREES = 60
PRIOR = np.array([1.0, 0.0])
"""Slope and intercept of the formula: what is seen is the busy share."""
PENALTY, FREE = 10.0, 0.1
"""The penalties of slope and intercept below the trees."""


class GpuUtilization(Predictor):
    """GPU utilization in percent, as nvidia-smi shows it.

    The formula: ``logit(utilization) = a + b·logit(share)``, ridge regression that draws a to 0 and b to 1. The share
    of a step in which kernels run is what they may take at most, or what launching them leaves, whichever is less:
    ``min(SLOWER·k, max(k, 1 − HOST_S·kernels / step time))`` with ``k = busy_frac + KERNEL_S·kernels / step time``; the
    rest is waiting for data. Beside it stand a random forest and gradient boosting, which learn what it leaves from all
    columns. Among these and their options one is chosen by grid search with cross-validation in ``parts`` that leave
    architectures out, by the squared error of log(1 + percent): the formula, unless another is surely better.

    Columns: ``testbed`` (where measured, with which framework), ``busy_frac`` (device-busy time over step time, as the
    time model has it; that of `work_row` where ``kernels`` are known), ``busy_time_s``, ``step_time_s``,
    ``flops``, ``kernels``, ``batch_size``, ``parameter_bytes``, ``activation_bytes``, all for one step; NaN where not
    known. For `fit` also ``architecture``. Outside are other testbeds, and sizes in `RANGED` beyond those of the fit.
    """

    def __init__(self, parts: int = 5) -> None:
        self.parts = parts

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Chooses and learns; ``y`` is in percent."""
        measured = np.asarray(y, dtype=np.float64)
        if len(measured) < 3 or np.any(measured <= 0.0) or np.any(measured > 100.0):
            raise PredictionError("utilization is learned from three or more rows above 0 and at most 100 percent")
        groups = strings(X, "architecture")
        if len(set(groups)) < 2:
            raise PredictionError(f"utilization of {groups[0]} alone says nothing of other networks")
        self.host_s_ = _host_s(X)
        self.middle_ = _middle(_numbers(X, self.host_s_))
        table, goal = self._table(X), _logit(measured)
        made = [_cross_validated(each, table, goal, groups, self.parts) for each in CANDIDATES]
        best = _best([_squares(measured, _percent(each), groups) for each in made])
        self.chosen_ = CANDIDATES[best]
        self.model_ = _learned(self.chosen_, table, goal)
        left_out = _percent(made[best])
        self.conformal_ = Conformal(widened(log_ratio(measured, left_out), len(set(groups))))
        known = [name for name in RANGED if np.isfinite(floats(X, name)).any()]
        self.domain_ = Domain.of(_domain_columns(X), known, ("testbed",))
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Percent for each row, with the interval, which ends at 100."""
        self._check_fitted()
        value = _percent(_applied(self.model_, self._table(X)))
        inside = self._like_fit(X) & np.isfinite(_times(X, self.host_s_)[0])
        made = self.conformal_.around(value, coverage, inside)
        return Estimates(value, made.low, np.minimum(made.high, 100.0), inside)

    def _like_fit(self, X: Columns) -> Bools:  # noqa: N803
        """Whether each row is in the domain; a number that is not known counts as inside."""
        columns = _domain_columns(X)
        for name, (low, _) in self.domain_.ranges.items():
            columns[name] = np.where(np.isnan(columns[name]), low, columns[name])
        return self.domain_.contains(columns)

    def _table(self, X: Columns) -> Floats:  # noqa: N803
        """The logit of the share first; what is not known is in the middle of what the fit knew."""
        numbers = _numbers(X, self.host_s_)
        return np.where(np.isfinite(numbers), numbers, self.middle_)


def _middle(numbers: Floats) -> Floats:
    """The mean of what is known of each."""
    known = np.isfinite(numbers)
    return np.asarray(np.where(known, numbers, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _numbers(X: Columns, host_s: float) -> Floats:  # noqa: N803
    share, step_s = _times(X, host_s)
    share = np.clip(share, LEAST_BUSY, MOST_BUSY)
    logs = [np.log(np.maximum(each, 1e-12)) for each in (step_s, *(floats(X, name) for name in SIZES))]
    return np.column_stack([np.log(share / (1.0 - share)), *logs])


def _times(X: Columns, host_s: float) -> tuple[Floats, Floats]:  # noqa: N803
    """Share of the step seen at work, and step time; one that is unknown takes its kernels and what the host adds."""
    busy_s, step_s, seen_s = floats(X, "busy_time_s"), floats(X, "step_time_s"), KERNEL_S * floats(X, "kernels")
    step_s = np.where(np.isfinite(step_s), step_s, busy_s + seen_s + host_s * floats(X, "kernels"))
    share = floats(X, "busy_frac")
    share = np.where(np.isfinite(share), share, np.minimum(busy_s / step_s, 1.0))
    least = share + np.nan_to_num(seen_s / step_s)
    launched = 1.0 - HOST_S * floats(X, "kernels") / step_s
    return np.where(np.isfinite(launched), np.minimum(SLOWER * least, np.maximum(least, launched)), least), step_s


def _host_s(X: Columns) -> float:  # noqa: N803
    """What the host adds to each kernel, in the middle of all rows with a step time."""
    added = (floats(X, "step_time_s") - floats(X, "busy_time_s")) / floats(X, "kernels") - KERNEL_S
    known = added[np.isfinite(added)]
    return float(np.median(np.maximum(known, 0.0))) if len(known) else 0.0


def _domain_columns(X: Columns) -> dict[str, Any]:  # noqa: N803
    return {"testbed": strings(X, "testbed"), **{name: floats(X, name) for name in RANGED}}


def _logit(percent: Floats) -> Floats:
    share = np.clip(percent, LEAST_PCT, MOST_PCT) / 100.0
    return np.asarray(np.log(share / (1.0 - share)))


def _percent(logit: Floats) -> Floats:
    return np.asarray(100.0 / (1.0 + np.exp(-logit)))


def _squares(measured: Floats, predicted: Floats, groups: Sequence[str]) -> Floats:
    """The mean squared error of log(1 + percent) of each architecture."""
    error = (np.log1p(predicted) - np.log1p(measured)) ** 2
    return np.array([error[np.array(groups) == each].mean() for each in sorted(set(groups))])


def _best(errors: Sequence[Floats]) -> int:
    """The first candidate, unless the best is better by more than two standard errors of the difference."""
    best = int(np.argmin([each.mean() for each in errors]))
    gain = errors[0] - errors[best]
    return best if gain.mean() > SURELY * gain.std() / np.sqrt(len(gain)) else 0


def _cross_validated(
    candidate: Candidate, table: Floats, goal: Floats, groups: Sequence[str] | NDArray[Any], parts: int
) -> Floats:
    made = np.empty(len(goal))
    for out in folds(groups, parts, SEED):
        made[out] = _applied(_learned(candidate, table[~out], goal[~out]), table[out])
    return made


def _learned(candidate: Candidate, table: Floats, goal: Floats) -> list[Any]:
    """Slope and intercept of the formula, and a forest for what it leaves if the candidate has one."""
    kind, options = candidate
    formula = _ridge(table[:, 0], goal, options.get("penalty", PENALTY))
    if kind == "formula":
        return [formula]
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor

    grower: Any = RandomForestRegressor if kind == "random_forest" else GradientBoostingRegressor
    left = goal - _applied([formula], table)
    return [formula, Forest.of(grower(n_estimators=TREES, random_state=SEED, **options).fit(table, left))]


def _ridge(logit: Floats, goal: Floats, penalty: float) -> Floats:
    table = np.column_stack([logit, np.ones(len(goal))])
    drawn = np.diag([penalty, FREE])
    return np.asarray(np.linalg.solve(table.T @ table + drawn, table.T @ goal + drawn @ PRIOR))


def _applied(model: Sequence[Any], table: Floats) -> Floats:
    (slope, intercept), *forests = model
    return np.asarray(slope * table[:, 0] + intercept + sum(forest.predict(table) for forest in forests))
