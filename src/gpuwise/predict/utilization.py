"""GPU utilization: in how much of a step's time the device is seen at work, from the graph and the time model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import (
    COVERAGE,
    Bools,
    Columns,
    Estimates,
    Floats,
    PredictionError,
    Predictor,
    floats,
    strings,
)
from gpuwise.predict.conformal import Conformal, folds, log_ratio
from gpuwise.predict.domain import Domain
from gpuwise.predict.few import widened
from gpuwise.predict.trees import Forest

SIZES = ("flops", "kernels", "batch_size", "parameter_bytes", "activation_bytes")
"""From the graph; they and the step time go in as logarithms."""
RANGED = ("step_time_s", "flops", "kernels")
"""Numbers beyond whose range in the fit a job is outside."""
LEAST_BUSY = 0.02
LEAST_PCT, MOST_PCT = 1.0, 99.5
SEED = 0

Candidate = tuple[str, dict[str, Any]]
CANDIDATES: tuple[Candidate, ...] = (
    ("saturation", {"penalty": 0.3, "busy": 0}),
    ("saturation", {"penalty": 3.0, "busy": 0}),
    ("saturation", {"penalty": 0.3, "busy": 1}),
    ("saturation", {"penalty": 3.0, "busy": 1}),
    ("random_forest", {"max_depth": 3, "min_samples_leaf": 2}),
    ("random_forest", {"max_depth": None, "min_samples_leaf": 2}),
    ("boosting", {"max_depth": 1, "learning_rate": 0.1}),
    ("boosting", {"max_depth": 2, "learning_rate": 0.1}),
)
"""What the grid search chooses from: ``saturation`` is the formula, with the busy share itself (0) or its logarithm
(1); the others are of scikit-learn."""
KINDS = ("saturation", "random_forest", "boosting")
TREES = 60


class GpuUtilization(Predictor):
    """GPU utilization in percent, as nvidia-smi shows it.

    The formula: ``logit(utilization) = a[testbed] + b·busy_frac + c·log(step time)``, or with log(busy_frac), ridge
    regression. Beside it stand a random forest and gradient boosting on all columns. The options of each are found by
    grid search with cross-validation in ``parts`` that leave architectures out, by RMSLE; the mean of the three logits
    is given, as with few architectures no one of them is surely the best.

    Columns: ``testbed`` (who measured, with which framework; one that is not known gets no shift of its own),
    ``busy_frac`` (device-busy time over step time, as the time model has it), ``busy_time_s``, ``step_time_s``,
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
        self.testbeds_ = sorted(set(strings(X, "testbed")))
        self.host_s_ = _host_s(X)
        self._scale(X)
        table, goal = self._table(X), _logit(measured)
        groups = strings(X, "architecture")
        self.chosen_: dict[str, dict[str, Any]] = {}
        self.models_: dict[str, Forest | Floats] = {}
        logits = []
        for kind in KINDS:
            options = [each for each in CANDIDATES if each[0] == kind]
            made = [_cross_validated(each, table, goal, groups, self.parts) for each in options]
            best = int(np.argmin([_rmsle(measured, _percent(each)) for each in made]))
            logits.append(made[best])
            self.chosen_[kind], self.models_[kind] = options[best][1], _learned(options[best], table, goal)
        left_out = _percent(np.mean(logits, axis=0))
        self.conformal_ = Conformal(widened(log_ratio(measured, left_out), len(set(groups))))
        known = [name for name in RANGED if np.isfinite(floats(X, name)).any()]
        self.domain_ = Domain.of(_domain_columns(X), known, ("testbed",))
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Percent for each row, with the interval, which ends at 100."""
        self._check_fitted()
        table = self._table(X)
        value = _percent(np.mean([_applied(each, table) for each in self.models_.values()], axis=0))
        inside = self._like_fit(X) & np.isfinite(_times(X, self.host_s_)[0])
        made = self.conformal_.around(value, coverage, inside)
        return Estimates(value, made.low, np.minimum(made.high, 100.0), inside)

    def _like_fit(self, X: Columns) -> Bools:  # noqa: N803
        """Whether each row is in the domain; a number that is not known counts as inside."""
        columns = _domain_columns(X)
        for name, (low, _) in self.domain_.ranges.items():
            columns[name] = np.where(np.isnan(columns[name]), low, columns[name])
        return self.domain_.holds(columns)

    def _scale(self, X: Columns) -> None:  # noqa: N803
        """Middle and spread of each number; what is not known is put in the middle."""
        numbers = _numbers(X, self.host_s_)
        known = np.isfinite(numbers)
        count = np.maximum(known.sum(axis=0), 1)
        self.middle_ = np.where(known, numbers, 0.0).sum(axis=0) / count
        off = np.where(known, numbers - self.middle_, 0.0)
        self.spread_ = np.maximum(np.sqrt((off**2).sum(axis=0) / count), 1e-9)

    def _table(self, X: Columns) -> Floats:  # noqa: N803
        numbers = (_numbers(X, self.host_s_) - self.middle_) / self.spread_
        testbed = np.array(strings(X, "testbed"))
        known = [np.asarray(testbed == each, dtype=np.float64) for each in self.testbeds_]
        return np.column_stack([np.where(np.isfinite(numbers), numbers, 0.0), *known])


def _numbers(X: Columns, host_s: float) -> Floats:  # noqa: N803
    busy, step_s = _times(X, host_s)
    logs = [np.log(np.maximum(each, 1e-12)) for each in (step_s, *(floats(X, name) for name in SIZES))]
    return np.column_stack([busy, np.log(np.maximum(busy, LEAST_BUSY)), *logs])


def _times(X: Columns, host_s: float) -> tuple[Floats, Floats]:  # noqa: N803
    """Busy share and step time; a step of unknown time takes its kernels' time and what the host adds to each."""
    busy_s, step_s = floats(X, "busy_time_s"), floats(X, "step_time_s")
    step_s = np.where(np.isfinite(step_s), step_s, busy_s + host_s * floats(X, "kernels"))
    share = floats(X, "busy_frac")
    return np.where(np.isfinite(share), share, np.minimum(busy_s / step_s, 1.0)), step_s


def _host_s(X: Columns) -> float:  # noqa: N803
    """What the host adds to each kernel, in the middle of all rows with a step time."""
    added = (floats(X, "step_time_s") - floats(X, "busy_time_s")) / floats(X, "kernels")
    known = added[np.isfinite(added)]
    return float(np.median(np.maximum(known, 0.0))) if len(known) else 0.0


def _domain_columns(X: Columns) -> dict[str, Any]:  # noqa: N803
    return {"testbed": strings(X, "testbed"), **{name: floats(X, name) for name in RANGED}}


def _logit(percent: Floats) -> Floats:
    share = np.clip(percent, LEAST_PCT, MOST_PCT) / 100.0
    return np.asarray(np.log(share / (1.0 - share)))


def _percent(logit: Floats) -> Floats:
    return np.asarray(100.0 / (1.0 + np.exp(-logit)))


def _rmsle(measured: Floats, predicted: Floats) -> float:
    return float(np.sqrt(np.mean((np.log1p(predicted) - np.log1p(measured)) ** 2)))


def _cross_validated(
    candidate: Candidate, table: Floats, goal: Floats, groups: Sequence[str] | NDArray[Any], parts: int
) -> Floats:
    made = np.empty(len(goal))
    for out in folds(groups, parts, SEED):
        made[out] = _applied(_learned(candidate, table[~out], goal[~out]), table[out])
    return made


def _learned(candidate: Candidate, table: Floats, goal: Floats) -> Forest | Floats:
    """A forest, or the weights of the formula with the intercept last."""
    kind, options = candidate
    if kind == "saturation":
        return _ridge(table, goal, **options)
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor

    if kind == "random_forest":
        return Forest.of(RandomForestRegressor(TREES, random_state=SEED, n_jobs=1, **options).fit(table, goal))
    return Forest.of(GradientBoostingRegressor(n_estimators=TREES, random_state=SEED, **options).fit(table, goal))


def _ridge(table: Floats, goal: Floats, penalty: float, busy: int) -> Floats:
    """Only one form of the busy share, the step time and the testbeds have a weight."""
    used = np.ones(table.shape[1], dtype=np.bool_)
    used[1 - busy] = False
    used[3 : 3 + len(SIZES)] = False
    kept = table[:, used]
    middle = goal.mean()
    inner = kept.T @ kept + penalty * np.eye(kept.shape[1])
    weights = np.zeros(table.shape[1] + 1)
    weights[:-1][used] = np.linalg.solve(inner, kept.T @ (goal - middle))
    weights[-1] = middle
    return weights


def _applied(model: Forest | Floats, table: Floats) -> Floats:
    if isinstance(model, Forest):
        return model.predict(table)
    return np.asarray(table @ model[:-1] + model[-1])
