"""How many steps a run needs to reach a target, from what it has done so far and from earlier runs of its workload."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Bools, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import floats, has_column, positive, strings
from gpuwise.predict.convergence.training_runs import ALONE, METHODS, Run, beside
from gpuwise.predict.intervals.conformal import Conformal

IS_ALONE = np.isin(METHODS, ALONE)
WORKLOAD_VOTES = 3.0
"""How many times more the errors on runs of the same workload count than those on all other workloads together."""
SHARPNESS = 0.02
"""Methods whose error is this much larger (in log) weigh e times less."""
UNKNOWN = 1e6
"""The error of a method without a prediction."""
NEVER_TRIED = 10.0
"""The error of a method that could be applied to no run of the fit."""
LEAST_DOUBT = 0.01
"""The least uncertainty of a prediction, in log."""


class StepsToTarget(Predictor):
    """Total steps of a run until its metric reaches a target, predicted while it runs.

    Columns, one row for each run: ``workload`` (model and data; runs of the same one teach each other), ``batch``,
    ``steps`` (an array for each row: in steps or epochs, alike for all runs of the workload), ``values`` (an array:
    loss or metric at those), ``target``. For `fit` the runs are whole, and measured is the total number of steps; for
    `predict` they are what has been seen so far. The weights of the methods (`METHODS`) are learned from their
    predictions half-way through the runs of the fit, each without the runs of its own batch size.
    """

    def __init__(self, ways: Sequence[str] = METHODS) -> None:
        self.ways = ways

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Keeps the runs, and learns how well each method predicts them."""
        runs = _runs(X)
        totals = np.asarray(y, dtype=np.float64)
        if totals.shape != (len(runs),) or np.any(~(totals > 0)) or np.any(np.isinf(totals)):
            raise PredictionError("each run must have reached its target, at a step above 0")
        self.runs_ = runs
        self.totals_ = totals
        self._halves = [run.until(total / 2.0) for run, total in zip(runs, totals, strict=True)]
        return self._learned(np.stack([self._predictions(half, apart=True) for half in self._halves]))

    def without(self, out: Collection[int]) -> Self:
        """A copy that has never seen these runs (by row number)."""
        dropped = set(out)
        kept = [row for row in range(len(self.runs_)) if row not in dropped]
        touched = {self.runs_[row].workload for row in dropped}
        made = type(self)(self.ways)
        made.runs_, made.totals_ = [self.runs_[row] for row in kept], self.totals_[kept]
        made._halves = [self._halves[row] for row in kept]
        before = np.where(self.errors_ == UNKNOWN, np.nan, np.log(self.totals_)[:, None] - self.errors_)
        again = [half.workload in touched for half in made._halves]
        rows = zip(kept, made._halves, again, strict=True)
        predicted = [made._predictions(half, True) if new else before[row] for row, half, new in rows]
        return made._learned(np.stack(predicted))

    def _learned(self, predicted: Floats) -> Self:
        """Errors half-way through each run, predicted without runs of its batch size, and the intervals from them."""
        self.errors_ = np.where(np.isfinite(predicted), np.log(self.totals_)[:, None] - predicted, UNKNOWN)
        workloads = np.array([run.workload for run in self.runs_])
        groups = np.array([f"{run.workload}\n{run.batch:g}" for run in self.runs_])
        known, unseen = np.zeros(len(predicted)), np.zeros(len(predicted))
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            errors = self._errors(workloads[mine[0]], groups != group)
            known[mine] = [self._residual(int(row), predicted[row], errors) for row in mine]
        for workload in np.unique(workloads):
            mine = np.flatnonzero(workloads == workload)
            errors = self._errors(workload, workloads != workload)
            alone = np.where(IS_ALONE, predicted, np.nan)
            unseen[mine] = [self._residual(int(row), alone[row], errors) for row in mine]
        self.interval_ = Conformal(known)
        extremes = [np.quantile(unseen[workloads == each], (0.05, 0.95)) for each in np.unique(workloads)]
        self.stranger_ = Conformal(np.concatenate(extremes))  # a new workload may be as unusual as any known one
        return self

    def _residual(self, row: int, predicted: Floats, errors: Floats) -> float:
        value, scale = self._blend(self._halves[row], predicted, errors)
        return float((np.log(self.totals_[row]) - value) / scale)

    def _predictions(self, run: Run, apart: bool) -> Floats:
        others = [each for each in self.runs_ if each.workload == run.workload]
        if apart:
            others = [each for each in others if each.batch != run.batch]
        predicted = np.concatenate([run.alone(), np.maximum(beside(run, others), np.log(run.now))])
        return np.where(np.isin(METHODS, self.ways), predicted, np.nan)

    def _errors(self, workload: str, use: Bools) -> Floats:
        """The mean error of each method on the runs in ``use``; those of the same workload count most."""
        names = [run.workload for run in self.runs_]
        total, votes = np.zeros(len(METHODS)), np.zeros(len(METHODS))
        others = set(np.asarray(names, dtype=object)[use])
        for each in sorted(others):
            rows = self.errors_[use & np.fromiter((name == each for name in names), np.bool_, len(names))]
            count = (rows != UNKNOWN).sum(axis=0)
            vote = (1.0 + WORKLOAD_VOTES * len(others) * (each == workload)) * (count > 0)
            total += vote * (np.abs(rows) * (rows != UNKNOWN)).sum(axis=0) / np.maximum(count, 1)
            votes += vote
        return np.where(votes > 0, total / np.maximum(votes, 1e-9), NEVER_TRIED)

    def _blend(self, run: Run, predicted: Floats, errors: Floats) -> tuple[float, float]:
        """log of the total, and its uncertainty: methods weighted by their errors."""
        least = float(np.log(run.now))
        answers = np.isfinite(predicted)
        if not answers.any():
            return max(float(np.median(np.log(self.totals_))), least), 1.0
        weight = np.exp(-(errors[answers] - errors[answers].min()) / SHARPNESS)
        weight /= weight.sum()
        return max(float(weight @ predicted[answers]), least), max(float(weight @ errors[answers]), LEAST_DOUBT)

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The total number of steps until the target, never less than what has been done."""
        self._check_fitted()
        signs = {run.workload: run.sign for run in self.runs_}
        runs = _runs(X, signs)
        use = np.ones(len(self.runs_), dtype=np.bool_)
        errors = {name: self._errors(name, use) for name in {run.workload for run in runs}}
        made = np.array([self._blend(run, self._predictions(run, apart=False), errors[run.workload]) for run in runs])
        known = np.array([run.workload in signs for run in runs])
        seen = np.array([len(run.steps) > 0 for run in runs])
        value, scale = np.exp(made[:, 0]), made[:, 1]
        usual = self.interval_.around(value, coverage, known & seen, scale)
        unseen = self.stranger_.around(value, coverage, known & seen, scale)
        low, high = np.where(known, usual.low, unseen.low), np.where(known, usual.high, unseen.high)
        now = np.array([run.now for run in runs])
        return Estimates(value, np.maximum(low, np.minimum(now, value)), high, known & seen)


def _runs(X: Columns, signs: Mapping[str, float] | None = None) -> list[Run]:  # noqa: N803
    for name in ("steps", "values"):
        if not has_column(X, name):
            raise PredictionError(f"column {name!r} is needed, with an array for each run")
    columns = (strings(X, "workload"), positive(X, "batch"), X["steps"], X["values"], floats(X, "target"))
    lengths = {len(column) for column in columns}
    if lengths == {0} or len(lengths) > 1:
        counts = ", ".join(str(len(column)) for column in columns)
        raise PredictionError(
            f"workload, batch, steps, values, target have {counts} rows; one or more of each is needed"
        )
    return [Run.of(*row, (signs or {}).get(row[0], 1.0)) for row in zip(*columns, strict=True)]
