"""Jobs that share GPUs, as columns: the neighbours of each, and measured pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Bools, Columns, Floats, PredictionError
from gpuwise.predict.columns import floats_or, strings, strings_or
from gpuwise.predict.sharing.contention import MODES, TIME_SLICE, crowding, expected, fitted, log_odds
from gpuwise.predict.sharing.sensitivity import Ints, Traits, likeness


class Jobs:
    """Rows of jobs, with what is unknown of them filled in."""

    def __init__(self, X: Columns, usual: Mapping[str, float]) -> None:  # noqa: N803
        self.groups, self.group = numbered(strings(X, "group"))
        self.gpu = strings(X, "gpu")
        self.model = strings(X, "model")
        batch = floats_or(X, "batch_size", len(self), np.nan)
        self.batch = np.where(batch > 0, batch, 1.0)
        self.mode = _modes(X, self.group)
        self.columns: dict[str, Any] = {"gpu": self.gpu}
        for name, value in usual.items():
            given = floats_or(X, name, len(self), np.nan)
            if np.any(given < 0) or (name == "step_time_s" and np.any(given == 0)):
                raise PredictionError(f"{name} is {np.nanmin(given)}; it must be above 0, or NaN where it is unknown")
            self.columns[name] = np.where(np.isnan(given), value, given)
        self.features = np.column_stack([self.columns["step_time_s"], self.columns["gpu_util_frac"]])

    def __len__(self) -> int:
        return len(self.gpu)

    def size(self) -> Ints:
        """How many jobs share each row's GPU."""
        return np.asarray(np.bincount(self.group)[self.group])

    def named(self, rows: Ints) -> tuple[list[str], Floats]:
        """The models and batch sizes of rows."""
        return [self.model[row] for row in rows], self.batch[rows]

    def crowding(self) -> Floats:
        """The part of the odds that each row's sharing mode leaves."""
        part = np.ones(len(self))
        for mode in sorted(set(self.mode)):
            here = np.asarray(self.mode) == mode
            demands = (self.columns["gpu_util_frac"][here], self.columns["mem_util_frac"][here])
            part[here] = crowding(mode, self.group[here], *demands)
        return part

    def neighbours(self) -> tuple[Ints, Ints]:
        """Each row as often as it has neighbours, and these: two columns of row numbers."""
        order = np.argsort(self.group, kind="stable")
        size = np.bincount(self.group)
        first = np.cumsum(size) - size
        times = size[self.group[order]]
        own = np.repeat(order, times)
        within = np.arange(len(own)) - np.repeat(np.cumsum(times) - times, times)
        other = order[first[self.group[own]] + within]
        apart = own != other
        return own[apart], other[apart]


class Pairs:
    """Measured pairs: a row for each job, beside its neighbour."""

    def __init__(self, jobs: Jobs, speed: Floats) -> None:
        wrong = speed[~((speed > 0) & (speed <= 1))]
        if len(wrong):
            raise PredictionError(
                f"a speed of {wrong[0]}; speeds are fractions of the solo speed, above 0 and at most 1"
            )
        if np.any(np.bincount(jobs.group) != 2) or len(jobs) != len(speed):
            raise PredictionError(
                "interference is fitted to groups of two jobs, with a speed for each; drop the others"
            )
        own, other = jobs.neighbours()
        self.speed = speed[own]
        self.own, self.other = jobs.features[own], jobs.features[other]
        self.gpus, gpu = numbered(jobs.gpu)
        self.gpu = gpu[own]
        kinds, job = numbered(list(zip(jobs.model, jobs.batch.tolist(), strict=True)))
        self.models = [model for model, _ in kinds]
        self.batch = np.array([batch for _, batch in kinds])
        self.own_job, self.other_job = job[own], job[other]
        self.alike = likeness(np.asarray(self.models), self.batch, np.asarray(self.models), self.batch)

    def mean(self, noise: Floats, rows: Bools) -> tuple[Floats, Floats]:
        """The part of the features, learned from some of the rows: powers, and a constant for each GPU."""
        return fitted(self.own[rows], self.other[rows], self.gpu[rows], self.speed[rows], noise[rows])

    def left(self, powers: Floats, constants: Floats) -> Floats:
        """The residual of the log odds after the features."""
        constant = np.concatenate([constants, np.zeros(len(self.gpus) - len(constants))])
        return np.asarray(log_odds(self.speed) - expected(powers, self.own, self.other) - constant[self.gpu])

    def noise(self) -> Floats:
        """The noise of each row's GPU, relative to the least noisy: some were measured on less steady machines."""
        left = self.left(*self.mean(np.ones(len(self.speed)), np.ones(len(self.speed), dtype=np.bool_)))
        spread = np.array([np.median(np.abs(left[self.gpu == at])) for at in range(len(self.gpus))])
        spread = np.maximum(spread, 1e-3)
        return np.asarray((spread / spread.min())[self.gpu])

    def traits(self, weights: Floats) -> Traits:
        """The weights of rows, gathered by GPU and pair."""
        table = np.zeros((len(self.gpus), len(self.batch), len(self.batch)))
        np.add.at(table, (self.gpu, self.own_job, self.other_job), weights)
        return Traits(self.gpus, self.models, self.batch, table)

    def pair(self) -> Ints:
        """The two jobs of a row, in whatever order and on whatever GPU, as a number."""
        first, second = np.minimum(self.own_job, self.other_job), np.maximum(self.own_job, self.other_job)
        return np.asarray(np.unique(first * len(self.batch) + second, return_inverse=True)[1])


def numbered(values: list[Any]) -> tuple[list[Any], Ints]:
    """The distinct values in order, and the number of each row's value among them."""
    names = sorted(set(values))
    number = {name: at for at, name in enumerate(names)}
    return names, np.array([number[value] for value in values], dtype=np.int64)


def _modes(X: Columns, group: NDArray[Any]) -> list[str]:  # noqa: N803
    modes = strings_or(X, "mode", len(group), TIME_SLICE)
    unknown = sorted(set(modes) - set(MODES))
    if unknown:
        raise PredictionError(f"no sharing mode {unknown[0]!r}; there are {', '.join(MODES)}")
    if len(set(zip(group.tolist(), modes, strict=True))) > len(set(group.tolist())):
        raise PredictionError("jobs of one group have different sharing modes; a GPU is shared in one way at a time")
    return modes
