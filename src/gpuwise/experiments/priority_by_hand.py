"""What the newest GPUs for those who gain most save, worked out without a simulator.

Two ways to share P100s and V100s, of which there are as many of one as of the other:

- by count: each type gets half of the jobs, as with a machine for every job;
- balanced: machines take job after job until all are done, so that the faster ones do more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpuwise.core.tables import Array
from gpuwise.experiments.mlperf import BENCHMARKS, Benchmark
from gpuwise.policies.gpu_types.prices import least_makespan_s

Order = Callable[[Benchmark], float]
"""Who gets the V100s first: the largest."""


def by_seconds(job: Benchmark) -> float:
    """What the V100 saves, which gives the least total time."""
    return job.saved_s


def by_ratio(job: Benchmark) -> float:
    """How many times as fast the V100 is."""
    return job.gain


class ByCount:
    """Half of the jobs on each type; ``mix`` has a row for each mix, with the weight of each benchmark."""

    def __init__(self, names: Sequence[str], mix: Array, order: Order = by_seconds) -> None:
        ranked = sorted(range(len(names)), key=lambda row: -order(BENCHMARKS[names[row]]))
        self._kinds = [BENCHMARKS[names[row]] for row in ranked]
        self._mix = np.atleast_2d(mix)[:, ranked]
        before = self._mix.cumsum(axis=1) - self._mix
        half = self._mix.sum(axis=1, keepdims=True) / 2
        self._priority = np.clip(half - before, 0.0, self._mix)
        """Jobs of each kind that are on V100s; with even assignment it is half of them."""

    def total_reduced_percent(self) -> Array:
        """By how much priority reduces the sum of all run times."""
        return _percent(*(np.add(*self._sides(on_v100)) for on_v100 in (self._priority, self._mix / 2)))

    def makespan_reduced_percent(self) -> Array:
        """By how much it reduces the time until the later of both types is done."""
        return _percent(*(np.maximum(*self._sides(on_v100)) for on_v100 in (self._priority, self._mix / 2)))

    def _sides(self, on_v100: Array) -> tuple[Array, Array]:
        """Run times of the jobs on P100s and of those on V100s."""
        p100_s, v100_s = np.array([[kind.p100_s, kind.v100_s] for kind in self._kinds]).T
        return (self._mix - on_v100) @ p100_s, on_v100 @ v100_s


def balanced_reduced_percent(names: Sequence[str]) -> float:
    """By how much priority reduces the makespan, and so the total time, of many jobs of equal parts."""
    kinds = [BENCHMARKS[name] for name in names]
    times = tuple((kind.p100_s, kind.v100_s) for kind in kinds)
    # Even: a type's machines draw from the whole mix, so that jobs per second is one over the mean time, and rates add.
    p100_s, v100_s = np.array(times).sum(axis=0)
    even_s = 1 / (1 / p100_s + 1 / v100_s)
    return float(_percent(np.array(least_makespan_s(times, (1.0,) * len(kinds), (1.0, 1.0))), np.array(even_s)))


def _percent(priority: Array, even: Array) -> Array:
    reduced: Array = 100 * (1 - priority / even)
    return reduced
