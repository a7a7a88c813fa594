"""GPU priority assignment: the newest GPUs for the jobs that gain most, against even assignment (Takayama et al.).

The paper's estimate is of 200 to 10,000 MLPerf jobs on machines with one P100 or one V100 each. How many of each
benchmark and how many machines is not published.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpuwise.core.job.spec import JobSpec
from gpuwise.experiments import mlperf
from gpuwise.experiments.mlperf import BENCHMARKS, EIGHT, MIXES, PUBLISHED, seconds
from gpuwise.experiments.priority_by_hand import ByCount, balanced_reduced_percent, by_ratio, by_seconds
from gpuwise.experiments.rows import Row
from gpuwise.policies.gpu_types.prices import least_makespan_s
from gpuwise.service.offline.simulate import simulate

NAME = "priority"
REDUCED = 8.241
WITHIN = 1.0
"""Points: the mix is not published, so ours need not be theirs."""
QUEUE = "10x1:P100+10x1:V100"
DRAWS = 20_000
EQUAL = "equal parts; the paper's mix is not published"


def rows(data: Path) -> list[Row]:
    """Every comparison."""
    return [
        *published(), *by_hand(), *random_mixes(), *one_machine_a_job(), *queue(), *fairness(), *signals(),
        *three_types(),
    ]  # fmt: skip


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
    note = "GPU time of even assignment over the published time; not a whole number, so their mix is another"
    for mix, names in MIXES.items():
        mean_s = np.mean([(BENCHMARKS[name].p100_s + BENCHMARKS[name].v100_s) / 2 for name in names])
        metric = f"10000 jobs: machines that the even time would mean for equal parts of {mix}"
        found.append(Row(NAME, metric, "machines", None, float(10_000 * mean_s / even_s), note=note))
    return found


def by_hand() -> list[Row]:
    """Equal parts of each benchmark, worked out without a simulator."""
    found = []
    for mix, names in MIXES.items():
        weights = np.ones(len(names))
        for order, how in ((by_seconds, "seconds saved"), (by_ratio, "ratio of times")):
            split = ByCount(names, weights, order)
            metric = f"by hand, {mix}, half of the jobs on each type, by {how}: "
            found.append(_reduced(metric + "total time reduced", float(split.total_reduced_percent()[0])))
            ours = float(split.makespan_reduced_percent()[0])
            found.append(Row(NAME, metric + "makespan reduced", "%", None, ours, note=EQUAL))
        metric = f"by hand, {mix}, both types busy to the end: total time and makespan reduced"
        found.append(_reduced(metric, balanced_reduced_percent(names)))
    return found


def random_mixes(draws: int = DRAWS) -> list[Row]:
    """Where the published figure stands among the reductions of mixes drawn at random."""
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


def one_machine_a_job(counts: Sequence[int] = tuple(PUBLISHED)) -> list[Row]:
    """The policies on as many GPUs as there are jobs, half of each type: every job is placed at once."""
    found = []
    for mix, names in MIXES.items():
        for count in counts:
            jobs = mlperf.jobs(mlperf.in_blocks(names, count))
            cluster = f"{count // 8}x4:P100+{count // 8}x4:V100"
            even, priority = (run(jobs, cluster, policy) for policy in ("even", "gain"))
            metric = f"{count} jobs of {mix}, a GPU for each: total time reduced"
            ours = _less(priority, even, "total_s")
            found.append(Row(NAME, metric, "%", PUBLISHED[count][2], ours, WITHIN, EQUAL))
    return found


def queue(counts: Sequence[int] = (200, 10_000)) -> list[Row]:
    """The policies on ten P100s and ten V100s, with all jobs waiting at the beginning."""
    found = []
    for mix in MIXES:
        for count in counts:
            even, priority = _queue(mix, count, "even"), _queue(mix, count, "gain")
            metric = f"{count} jobs of {mix}, 20 GPUs: "
            found.append(_reduced(metric + "total time reduced", _less(priority, even, "total_s")))
            ours = _less(priority, even, "makespan_s")
            found.append(Row(NAME, metric + "makespan reduced", "%", None, ours, note=EQUAL))
        found.append(Row(NAME, metric + "time to simulate gain", "s", None, priority.wall_s))
    return found


def fairness(count: int = 2000, bounds: Sequence[int] = (20, 100)) -> list[Row]:
    """How often a job is passed by later ones, and what a bound on it costs."""
    found = []
    for mix in MIXES:
        even = _queue(mix, count, "even")
        for policy in ("gain", *(f"gain-fair?passes={bound}" for bound in bounds)):
            ours = _queue(mix, count, policy)
            note = f"at most {ours.most_passed} later jobs start before a job does"
            metric = f"{count} jobs of {mix}, 20 GPUs, {policy}: total time reduced"
            found.append(Row(NAME, metric, "%", None, _less(ours, even, "total_s"), note=note))
    return found


def signals(count: int = 1000, load: float = 0.8) -> list[Row]:
    """What tells a job's gain: measured, utilization alone, or predicted from its network; the truth is as measured.

    All jobs at once, and jobs that come one by one, so that GPUs are idle now and then.
    """
    found = []
    for mix, names in MIXES.items():
        mean_s = np.mean([(BENCHMARKS[name].p100_s + BENCHMARKS[name].v100_s) / 2 for name in names])
        submit_s = np.random.default_rng(1).exponential(mean_s / 20 / load, count).cumsum()
        kinds = mlperf.shuffled(names, count)
        for when, jobs in (("at once", mlperf.jobs(kinds)), (f"at load {load}", mlperf.jobs(kinds, submit_s))):
            even = run(jobs, QUEUE, "even")
            for how, (policy, more, note) in _told().items():
                ours = run(jobs, QUEUE, policy, **more)
                metric = f"{count} jobs of {mix} {when}, 20 GPUs, gains {how}: "
                total = _less(ours, even, "total_s")
                found.append(Row(NAME, metric + "total time reduced", "%", None, total, note=note))
                if jobs[-1].submit_s:
                    jct = _less(ours, even, "avg_jct_s")
                    found.append(Row(NAME, metric + "average JCT reduced", "%", None, jct, note=note))
    return found


def three_types(count: int = 2000) -> list[Row]:
    """Gangs of 1, 2 and 4 on three GPU types, against the transport problem's bound."""
    gangs = np.random.default_rng(2).choice((1, 2, 4), size=count, p=(0.6, 0.25, 0.15)).tolist()
    jobs = [_gang(*each) for each in zip(mlperf.jobs(mlperf.shuffled(EIGHT, count)), gangs, strict=True)]
    cluster = "4x4:P100+4x4:V100+4x4:A100"
    even, ours = run(jobs, cluster, "even"), run(jobs, cluster, "gain")
    bound_s = least_makespan_s(
        tuple(tuple(job.duration_s / speed for _, speed in job.speeds) for job in jobs),
        tuple(float(job.gpus) for job in jobs),
        (16.0, 16.0, 16.0),
    )
    figures = {
        "total time reduced": _less(ours, even, "total_s"),
        "makespan reduced": _less(ours, even, "makespan_s"),
        "makespan above the transport problem's bound": 100 * (ours.makespan_s / bound_s - 1),
    }
    note = "eight benchmarks; on the A100 each is assumed to gain again what it gains from P100 to V100"
    metric = f"{count} gangs of 1, 2 and 4 on P100s, V100s and A100s: "
    return [Row(NAME, metric + what, "%", None, each, note=note) for what, each in figures.items()]


# -- runs --------------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of a run."""

    total_s: float
    """GPU time that jobs held."""
    makespan_s: float
    avg_jct_s: float
    most_passed: int
    """Later jobs that started before a job did, at most."""
    wall_s: float


def run(jobs: Sequence[JobSpec], cluster: str, policy: str, **more: Any) -> Outcome:
    """Simulates a policy."""
    result = simulate(jobs, cluster, policy, **more)
    frame, metrics = result.to_frame(), result.metrics
    passed = _most_passed(frame["start_s"].to_list())
    return Outcome(float(frame["gpu_s"].sum()), metrics.makespan_s, metrics.avg_jct_s, passed, result.wall_s)


@cache
def _queue(mix: str, count: int, policy: str) -> Outcome:
    return run(mlperf.jobs(mlperf.shuffled(MIXES[mix], count)), QUEUE, policy)


def _most_passed(start_s: list[float]) -> int:
    most = 0
    later: list[float] = []
    for each in reversed(start_s):
        most = max(most, bisect_left(later, each))
        insort(later, each)
    return most


def _gang(job: JobSpec, gpus: int) -> JobSpec:
    gain = BENCHMARKS[job.model].gain
    return replace(job, gpus=gpus, speeds=(*job.speeds, ("A100", gain * gain)))


@cache
def _told() -> dict[str, tuple[str, dict[str, Any], str]]:
    """What tells gains: the policy, what it believes, and a word about it."""
    found: dict[str, tuple[str, dict[str, Any], str]] = {
        "measured": ("gain", {}, ""),
        "by utilization alone": ("gain?signal=utilization", {}, "Amdahl's law with GPU utilization and FP32 peaks"),
    }
    if find_spec("torchvision"):
        from gpuwise.experiments.mlperf_models import predicted_gains

        gains = predicted_gains()
        note = ", ".join(f"{name} {gain:.2f} ({BENCHMARKS[name].gain:.2f})" for name, gain in gains.items())
        note = f"predicted (measured) gains: {note}; batches assumed"
        found["predicted from networks"] = ("gain", {"beliefs": mlperf.believing(gains)}, note)
    return found


def _reduced(metric: str, ours: float, note: str = EQUAL) -> Row:
    return Row(NAME, metric, "%", REDUCED, ours, WITHIN, note)


def _less(ours: Outcome, than: Outcome, figure: str) -> float:
    return float(100 * (1 - getattr(ours, figure) / getattr(than, figure)))
