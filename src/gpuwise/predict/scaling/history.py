"""Time of a job at a size it has not run at, from its own runs at other sizes and from how other jobs grew."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import check_positive, floats, floats_or, strings, strings_or
from gpuwise.predict.intervals.conformal import Conformal
from gpuwise.predict.scaling.backtests import AXES, SHAPES, JobHistory

OWN_VOTES = 1.0
CLUSTER_VOTES = 3.0
ALL_VOTES = 1.0
"""Weights of the back tests of a job itself (few, and of smaller sizes than predicted), of other jobs on the same
cluster, and of all jobs, in the choice of a form."""
OWN_ROWS = 6.0
OTHER_ROWS = 3.0
"""The uncertainty of a job: from at most `OWN_ROWS` of its own back-tested rows; all others weigh as `OTHER_ROWS`."""
SHARPNESS = 0.01
"""Forms whose error is this much larger (in log) weigh e times less."""
LEAST_RESIDUALS = 10
"""With fewer residuals of back tests nothing is known of how far off predictions are."""
UNTESTED = 2.0
"""Then the interval is this factor each way, as it is for a job that was measured at one size only."""
LEAST_JOBS = 3
"""Number of jobs of a cluster that must have grown from a number of GPUs for that size to have its own interval."""
MOST_ROWS = 1000
"""The maximum number of residuals of one back test that count for the interval."""
REACH = 0.5
"""Doublings of GPUs or nodes over which the experience of other jobs fades."""
SAME_SIZE = 0.3
"""Doublings by which the largest sizes that two jobs have reached may differ, for one to learn from the other."""


class HistoryTime(Predictor):
    """Time of a job that has run at other sizes: batch and number of GPUs may be extrapolated.

    Columns: ``job`` (what runs, on which GPU type), ``batch`` (samples per GPU and step), and if given ``gpus`` (1),
    ``nodes`` (1), ``iterations`` (1), ``cluster`` (where; jobs of one cluster learn from each other). Measured:
    ``time_s`` of all iterations; with iterations of 1 it is the step time.

    Several surfaces (`StepSurface`) are fitted to each job. How much each counts is learned by leaving out the largest
    sizes: of the job itself, of the other jobs of its cluster, and of all jobs. The residuals of other jobs of the
    cluster at a number of GPUs that this job has not reached shift its prediction.

    The interval along GPUs is that of all back tests, or that of the cluster's jobs that grew from as many GPUs if that
    is wider, and grows with each further doubling.

    Without back tests, or for a job with a single size, the interval is a factor of two each way, and no row counts as
    inside the domain. At a size that was measured several times the interval contains those measurements up to the
    coverage.
    """

    def __init__(self, borrow: bool = True) -> None:
        self.borrow = borrow

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns each job's surfaces, and from all of them how well which form extrapolates."""
        self.jobs_: dict[str, JobHistory] = {}
        self._add(X, y)
        self.intervals_ = self._calibrated()
        return self

    def partial_fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Adds jobs, or replaces those of the same name, without calibrating again."""
        if not hasattr(self, "jobs_"):
            return self.fit(X, y)
        self._add(X, y)
        return self

    def without(self, jobs: Collection[str], calibrate: bool = True) -> Self:
        """A copy that has never seen these jobs; ``calibrate`` makes its intervals again."""
        made = type(self)(self.borrow)
        made.jobs_ = {name: each for name, each in self.jobs_.items() if name not in jobs}
        made.intervals_ = made._calibrated() if calibrate else dict(self.intervals_)
        return made

    def _add(self, X: Columns, y: ArrayLike) -> None:  # noqa: N803
        jobs, rows = np.asarray(strings(X, "job")), _rows(X)
        step_s = np.asarray(y, dtype=np.float64) / _iterations(X, len(rows))
        clusters = strings_or(X, "cluster", len(rows), "")
        if not np.all(np.isfinite(step_s)) or np.any(step_s <= 0):
            raise PredictionError("measured times must be finite and above 0; leave out rows that were not measured")
        for job in np.unique(jobs):
            mine = np.flatnonzero(jobs == job)
            self.jobs_[str(job)] = JobHistory.of(clusters[mine[0]], rows[mine], step_s[mine])

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The time of all iterations, with its interval; a job without history is refused."""
        self._check_fitted()
        jobs, rows = np.asarray(strings(X, "job")), _rows(X)
        made = np.zeros((3, len(rows)))
        inside = np.zeros(len(rows), dtype=np.bool_)
        for job in np.unique(jobs):
            if job not in self.jobs_:
                raise PredictionError(f"job {str(job)!r} has no history; fit it first, or use a model for unseen jobs")
            axes = np.asarray(self.jobs_[job].axis_of(rows))
            for axis in AXES:
                at = np.flatnonzero((jobs == job) & (axes == axis))
                if len(at):
                    found = self._around(str(job), rows[at], axis, coverage)
                    made[:, at], inside[at] = (found.value, found.low, found.high), found.in_domain
        made *= _iterations(X, len(rows))
        return Estimates(made[0], made[1], made[2], inside)

    def _around(self, job: str, rows: Floats, axis: str, coverage: float) -> Estimates:
        """The step time at sizes of one job along one axis, with its interval."""
        history = self.jobs_[job]
        log_s, scale = self._predicted(job, rows, axis, own_depth=1)
        value = np.exp(log_s)
        if axis in self.intervals_ and len(np.unique(history.rows, axis=0)) > 1:
            inside, most = history.reaches(rows), float(history.rows[:, 1].max())
            away = np.maximum(np.log2(rows[:, 1] / most), 1.0)  # errors were seen over one doubling of GPUs, and add up
            names = [axis, _from_size(history.cluster, most)] if axis == "gpus" else [axis]
            known = [self.intervals_[name] for name in names if name in self.intervals_]
            parts = [each.around(value, coverage, inside, scale * away) for each in known]
            low, high = np.min([each.low for each in parts], axis=0), np.max([each.high for each in parts], axis=0)
            found = Estimates(value, low, high, inside)
        else:
            found = Estimates(value, value / UNTESTED, value * UNTESTED, np.zeros(len(rows), dtype=np.bool_))
        low, high = history.measured_between(rows, coverage)
        return Estimates(value, np.fmin(found.low, low), np.fmax(found.high, high), found.in_domain)

    def _predicted(self, job: str, rows: Floats, axis: str, own_depth: int) -> tuple[Floats, float]:
        """log of the step time, and how uncertain it is, from back tests of this job of at least ``own_depth``."""
        weights = self._weights(job, axis, own_depth)
        value = self.jobs_[job].log_step_s(rows, axis) @ weights
        if self.borrow and axis == "gpus":
            value = value + self._shift(job, rows, float(self.jobs_[job].rows[:, 1].max()), weights)
        return value, self._scale(job, axis, own_depth, weights)

    def _weights(self, job: str, axis: str, own_depth: int) -> Floats:
        """How much each form counts: by its mean error in back tests, own, of the cluster, of all."""
        mine = self.jobs_[job]
        own = [test for test in mine.tests[axis] if test.depth >= own_depth]
        others = [each for name, each in self.jobs_.items() if name != job]
        near = [test for each in others if each.cluster == mine.cluster for test in each.tests[axis]]
        every = [test for each in others for test in each.tests[axis]]
        error, votes = np.full(len(SHAPES[axis]), 1e-9), 1e-9
        for tests, vote in ((own, OWN_VOTES), (near, CLUSTER_VOTES), (every, ALL_VOTES)):
            if tests:
                error = error + vote * np.mean([test.error for test in tests], axis=0)
                votes += vote
        weights = np.exp(-(error / votes - np.min(error / votes)) / SHARPNESS)
        return np.asarray(weights / weights.sum())

    def _shift(self, job: str, rows: Floats, cut: float, weights: Floats) -> Floats:
        """The shift to expect from the residuals of other jobs of the cluster that grew from the same number of GPUs.

        Their mean at about these GPUs and nodes, times how well the others would have predicted each other: the slope
        of a regression of the residual of each on the mean of the rest, from 0 to 1.
        """
        others = {}
        for name, each in self.jobs_.items():
            if name != job and each.cluster == self.jobs_[job].cluster:
                tests = [test for test in each.tests["gpus"] if abs(np.log2(test.cut / cut)) < SAME_SIZE]
                if tests:
                    residual = np.concatenate([test.residuals for test in tests]) @ weights
                    others[name] = (np.concatenate([test.rows for test in tests]), residual)
        top = bottom = 0.0
        for name, (at, residual) in others.items():
            expected = _mean_residual([each for other, each in others.items() if other != name], at)
            top += float(np.mean(expected * residual))
            bottom += float(np.mean(expected**2))
        trust = float(np.clip(top / bottom, 0.0, 1.0)) if bottom > 0 else 0.0
        return trust * _mean_residual(list(others.values()), rows)

    def _scale(self, job: str, axis: str, own_depth: int, weights: Floats) -> float:
        """The size of errors to expect: the job's own in back tests, shrunk to that of all jobs."""
        own = [test.residuals @ weights for test in self.jobs_[job].tests[axis] if test.depth >= own_depth]
        tests = [test for name, each in self.jobs_.items() if name != job for test in each.tests[axis]]
        common = float(np.mean([np.mean(np.abs(test.residuals @ weights)) for test in tests])) if tests else 0.1
        if not own:
            return common
        errors = np.abs(np.concatenate(own))
        votes = min(float(len(errors)), OWN_ROWS)
        return float((votes * np.mean(errors) + OTHER_ROWS * common) / (votes + OTHER_ROWS))

    def _calibrated(self) -> dict[str, Conformal]:
        """The interval along each axis with back tests, and for each number of GPUs from which several jobs grew."""
        made = {}
        for axis in AXES:
            groups: dict[str, list[Floats]] = {}
            for name, residual in self._residuals(axis):
                groups.setdefault(name, []).append(residual)
            every = np.concatenate([*(each for parts in groups.values() for each in parts), np.zeros(0)])
            if len(every) >= LEAST_RESIDUALS:
                made[axis] = Conformal(every)
            if axis == "gpus":
                made |= {name: Conformal(np.concatenate(p)) for name, p in groups.items() if len(p) >= LEAST_JOBS}
        return made

    def _residuals(self, axis: str) -> Iterator[tuple[str, Floats]]:
        """Residuals at the largest sizes of each job, predicted as if they had not been measured; from which size."""
        for job, history in self.jobs_.items():
            for test in history.tests[axis]:
                weights = self._weights(job, axis, test.depth + 1)
                residual = test.residuals @ weights
                if self.borrow and axis == "gpus":
                    residual = residual - self._shift(job, test.rows, test.cut, weights)
                few = np.linspace(0, len(residual) - 1, min(len(residual), MOST_ROWS)).astype(int)
                scale = self._scale(job, axis, test.depth + 1, weights)
                yield _from_size(history.cluster, test.cut), residual[few] / scale


def _from_size(cluster: str, most_gpus: float) -> str:
    """The name of the interval for jobs of a cluster that have run on up to about ``most_gpus``."""
    return f"gpus/{cluster}/{round(np.log2(most_gpus))}"


def _mean_residual(seen: list[tuple[Floats, Floats]], rows: Floats) -> Floats:
    """The mean over jobs of their residuals near each row, shrunk to 0 as by one job without any."""
    asked, index = np.unique(np.log2(rows[:, 1:]), axis=0, return_inverse=True)
    total, count = np.zeros(len(asked)), np.ones(len(asked))
    for at, residual in seen:
        places, place = np.unique(np.log2(at[:, 1:]), axis=0, return_inverse=True)
        rows_at = np.bincount(place.ravel()).astype(np.float64)
        sums = np.bincount(place.ravel(), weights=residual)
        near = np.exp(-np.abs(asked[:, None, :] - places[None, :, :]).sum(axis=2) / REACH)
        total += near.max(axis=1) * (near @ sums) / np.maximum(near @ rows_at, 1e-9)
        count += near.max(axis=1)
    return np.asarray((total / count)[index.ravel()])


def _iterations(X: Columns, count: int) -> Floats:  # noqa: N803
    given = floats_or(X, "iterations", count, 1.0)
    check_positive(given, "column 'iterations'")
    return given


def _rows(X: Columns) -> Floats:  # noqa: N803
    batch = floats(X, "batch")
    gpus, nodes = floats_or(X, "gpus", len(batch), 1.0), floats_or(X, "nodes", len(batch), 1.0)
    for name, column in (("batch", batch), ("gpus", gpus), ("nodes", nodes)):
        if np.any(~(column > 0)):
            raise PredictionError(f"{name} of {column[~(column > 0)][0]:g}; it must be above 0")
    return np.stack([batch, gpus, nodes], axis=1)
