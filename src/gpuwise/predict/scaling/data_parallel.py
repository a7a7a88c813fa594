"""Step time of data-parallel training over GPUs and nodes: of a job that was measured, and of a typical one."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import check_positive, positive, strings
from gpuwise.predict.intervals.conformal import Conformal, folds, left_out
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.scaling.surface import Shape, StepSurface

OVERLAPS = (1.0, 2.0, 4.0)
FOLDS = 4
NUMBERS = ("batch", "gpus", "nodes")
LEAST = {"gpus": 1.0, "nodes": 1.0}
"""Other columns must be above 0."""


class AllReduceScaling(Predictor):
    """Speed of one job by batch, GPUs and nodes, from its own runs: a surface (`StepSurface`) that knows placement.

    Columns: ``batch`` (samples per GPU and step), ``gpus``, ``nodes``; measured: ``step_time_s``. How far
    synchronization hides behind computation is chosen by cross-validation over placements. Called with arrays it gives
    steps per second; results are cached.
    """

    def __init__(self, superlinear: bool = True) -> None:
        self.superlinear = superlinear

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns the job's surface."""
        table, step_s = _checked(X, y, NUMBERS)
        rows = np.stack([table[name] for name in NUMBERS], axis=1)
        shapes = [Shape(g, self.superlinear, 0.0, anchored) for g in OVERLAPS for anchored in (False, True)]
        errors = [self._validated(shape, rows, step_s) for shape in shapes]
        best = int(np.argmin([np.mean(np.abs(each)) for each in errors]))
        self.surface_ = StepSurface(shapes[best]).fit(rows[:, 0], rows[:, 1], rows[:, 2], step_s)
        self.interval_ = Conformal(errors[best])
        self.domain_ = Domain.of(X, NUMBERS)
        self._known: dict[tuple[float, float, float], float] = {}
        return self

    def _validated(self, shape: Shape, rows: Floats, step_s: Floats) -> Floats:
        """log(measured / predicted) of each placement, from the others (of each row, where there are few)."""
        names = [f"{gpus:g}/{nodes:g}" for _, gpus, nodes in rows]
        groups = names if len(set(names)) >= FOLDS else [str(each) for each in range(len(rows))]
        found = np.zeros(len(rows))
        if len(rows) < 2:
            return np.log([0.5, 2.0])
        for out in folds(groups, FOLDS):
            surface = StepSurface(shape).fit(rows[~out, 0], rows[~out, 1], rows[~out, 2], step_s[~out])
            found[out] = np.log(step_s[out]) - np.log(surface(rows[out, 0], rows[out, 1], rows[out, 2]))
        return found

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The step time, with its interval."""
        self._check_fitted()
        value = self.surface_(*(positive(X, name, LEAST.get(name)) for name in NUMBERS))
        return self.interval_.around(value, coverage, self.domain_.contains(X))

    def __call__(self, gpus: ArrayLike, nodes: ArrayLike, batch: ArrayLike) -> Floats:
        """Steps per second for arrays of sizes."""
        self._check_fitted()
        known = self.__dict__.setdefault("_known", {})
        asked = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in (batch, gpus, nodes)))
        keys = list(zip(*(each.ravel().tolist() for each in asked), strict=True))
        new = sorted({key for key in keys if key not in known})
        if new:
            columns = np.asarray(new).T
            for name, column in zip(NUMBERS, columns, strict=True):
                check_positive(column, name, LEAST.get(name))
            known.update(zip(new, (1.0 / self.surface_(columns[0], columns[1], columns[2])).tolist(), strict=True))
        return np.array([known[key] for key in keys]).reshape(asked[0].shape)

    def speedup(self, gpus: ArrayLike, nodes: ArrayLike, batch: ArrayLike) -> Floats:
        """Samples per second against one GPU with the same batch per GPU."""
        return np.asarray(self(gpus, nodes, batch) * np.asarray(gpus) / self(1, 1, batch))


class TypicalScaling(Predictor):
    """Step time on several GPUs of a job that has only run on one: as jobs of other models grew.

    T = T₁ + √T₁·Σ θᵢ·φᵢ, θ ≥ 0, with φ: that there are several GPUs, log₂ of their number, and the same of nodes.
    The root is between a cost that does not depend on the model and one in proportion to its work: longer steps belong
    to larger models, which have more to synchronize.
    Columns: ``step_time_s`` (T₁, on one GPU with the same batch per GPU), ``gpus``, ``nodes``, and for `fit` ``model``,
    so that the interval is that of a model never seen. Measured: the step time on all of them.
    """

    def __init__(self, folds: int = 10) -> None:
        self.folds = folds

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns from jobs that ran on one and on several GPUs."""
        names = ("step_time_s", "gpus", "nodes")
        table, measured = _checked(X, y, names)
        models = np.asarray(strings(X, "model"))
        if len(np.unique(models)) < 2 or len(models) != len(measured):
            raise PredictionError(f"{len(np.unique(models))} models; at least two are needed, and a name in each row")
        table["share"] = _shares(models)
        predicted = left_out(_typical, table, measured, models, count=self.folds)
        self.theta_ = _theta(table, measured)
        errors = np.log(measured) - np.log(predicted)
        self.interval_ = Conformal(np.concatenate([_few(errors[models == each]) for each in np.unique(models)]))
        self.domain_ = Domain.of(table, names)
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The step time, with its interval."""
        self._check_fitted()
        table = {name: positive(X, name, LEAST.get(name)) for name in ("step_time_s", "gpus", "nodes")}
        value = table["step_time_s"] + _overheads(table) @ self.theta_
        return self.interval_.around(value, coverage, self.domain_.contains(table))


def _checked(X: Columns, y: ArrayLike, names: tuple[str, ...]) -> tuple[dict[str, Floats], Floats]:  # noqa: N803
    """The columns and the measured times, checked."""
    table, measured = {name: positive(X, name, LEAST.get(name)) for name in names}, np.asarray(y, dtype=np.float64)
    counts = [len(column) for column in (*table.values(), np.atleast_1d(measured))]
    if counts[-1] == 0 or len(set(counts)) > 1:
        rows = ", ".join(str(count) for count in counts)
        raise PredictionError(f"{', '.join(names)} and measured times have {rows} rows; one or more of each is needed")
    check_positive(measured, "measured step time")
    return table, measured


def _overheads(table: Columns) -> Floats:
    alone, gpus, nodes = table["step_time_s"], table["gpus"], table["nodes"]
    costs = [(gpus > 1) * 1.0, np.log2(gpus), (nodes > 1) * 1.0, np.log2(nodes)]
    return np.asarray(np.stack(costs, axis=1) * np.sqrt(np.asarray(alone))[:, None])


def _shares(models: NDArray[Any]) -> Floats:
    """Weights with which each model counts the same, however many rows it has."""
    _, index, count = np.unique(models, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(count[index]))


def _few(errors: Floats) -> Floats:
    """A fixed number of quantiles of the errors of one model, so that each model counts the same."""
    return np.asarray(np.quantile(errors, np.linspace(0.0, 1.0, 21)))


def _theta(table: Columns, measured: Floats) -> Floats:
    from scipy.optimize import nnls

    weight = table["share"] / measured
    return np.asarray(nnls(_overheads(table) * weight[:, None], (measured - table["step_time_s"]) * weight)[0])


def _typical(seen: Columns, measured: Floats, asked: Columns) -> Floats:
    theta = _theta(seen, measured)
    return np.asarray(asked["step_time_s"] + _overheads(asked) @ theta)
