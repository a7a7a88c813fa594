"""What the newest GPUs save if the jobs that gain most get them, calculated without a simulator.

Two ways to share P100s and V100s, of which there are as many of one as of the other:

- by count: each type gets half of the jobs, as with a machine for every job;
- balanced: machines take job after job until all are done, so that the faster ones do more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpuwise.core.tables import Array
from gpuwise.experiments.priority.mlperf import (
    BENCHMARKS,
    EQUAL,
    MIXES,
    NAME,
    PUBLISHED,
    REDUCED,
    WITHIN,
    Benchmark,
    seconds,
)
from gpuwise.experiments.rows import Row
from gpuwise.policies.gpu_types.prices import least_makespan_s

DRAWS = 20_000

Order = Callable[[Benchmark], float]
"""The jobs with the largest value get the V100s."""


def rows() -> list[Row]:
    """The published table, equal parts of each benchmark, and random mixes."""
    return [*published(), *equal_parts(), *random_mixes()]


def published() -> list[Row]:
    """The paper's table against itself, and what it says of the workload."""
    found = []
    for count in (200, 10_000):
        priority, even, percent = PUBLISHED[count]
        ours = 100 * (1 - seconds(priority) / seconds(even))
        found.append(Row(NAME, f"{count} jobs: reduction by the published times", "%", percent, ours, 0.001))
    even_s, ours_s = seconds(PUBLISHED[10_000][1]), 50 * seconds(PUBLISHED[200][1])
    note = "printed as 4509:32:33, a reduction of 17.4 %; 4059:32:33 is 50 times the row of 200 jobs"
    found.append(Row(NAME, "10000 jobs: even assignment", "h", even_s / 3600, ours_s / 3600, 1e-5, note))
    note = "GPU time of even assignment over the published time; not a whole number, so their mix is different"
    for mix, names in MIXES.items():
        mean_s = np.mean([(BENCHMARKS[name].p100_s + BENCHMARKS[name].v100_s) / 2 for name in names])
        metric = f"10000 jobs: machines that the even time would mean for equal parts of {mix}"
        found.append(Row(NAME, metric, "machines", None, float(10_000 * mean_s / even_s), note=note))
    return found


def equal_parts() -> list[Row]:
    """Equal parts of each benchmark."""
    found = []
    for mix, names in MIXES.items():
        weights = np.ones(len(names))
        for order, how in ((by_seconds, "seconds saved"), (by_ratio, "ratio of times")):
            split = ByCount(names, weights, order)
            metric = f"by hand, {mix}, half of the jobs on each type, by {how}: "
            found.append(reduced_row(metric + "total time reduced", float(split.total_reduced_percent()[0])))
            ours = float(split.makespan_reduced_percent()[0])
            found.append(Row(NAME, metric + "makespan reduced", "%", None, ours, note=EQUAL))
        metric = f"by hand, {mix}, both types busy to the end: total time and makespan reduced"
        found.append(reduced_row(metric, balanced_reduced_percent(names)))
    return found


def random_mixes(draws: int = DRAWS) -> list[Row]:
    """The percentile of the published figure among the reductions of random mixes."""
    rng = np.random.default_rng(0)
    found = []
    for mix, names in MIXES.items():
        kinds = len(names)
        drawn = {
            "each mix as likely as any other": rng.dirichlet(np.ones(kinds), draws),
            "200 jobs, each drawn at random": rng.multinomial(200, np.full(kinds, 1 / kinds), draws).astype(float),
        }
        for how, weights in drawn.items():
            for order in (by_seconds, by_ratio):
                reduced = ByCount(names, weights, order).total_reduced_percent()
                low, middle, high = np.percentile(reduced, (5, 50, 95))
                note = f"median {middle:.2f} %, 90 % of mixes within {low:.2f} and {high:.2f} %; {draws} draws"
                metric = f"random mixes of {mix}, {how}, {order.__name__.replace('_', ' ')}: percentile of {REDUCED} %"
                found.append(Row(NAME, metric, "percentile", None, 100 * float((reduced < REDUCED).mean()), note=note))
    return found


def reduced_row(metric: str, ours: float) -> Row:
    """Our reduction beside the published one."""
    return Row(NAME, metric, "%", REDUCED, ours, WITHIN, EQUAL)


# -- two ways to share the GPUs ----------------------------------------------------------------------------------------


def by_seconds(job: Benchmark) -> float:
    """The seconds that the V100 saves, which gives the least total time."""
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
