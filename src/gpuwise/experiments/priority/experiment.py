"""GPU priority assignment: the newest GPUs for the jobs that gain most, against even assignment (Takayama et al.).

The paper's estimate is of 200 to 10,000 MLPerf jobs on machines with one P100 or one V100 each. The numbers of
jobs per benchmark and of machines are not published.
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
from gpuwise.experiments.priority import by_hand, mlperf
from gpuwise.experiments.priority.by_hand import reduced_row
from gpuwise.experiments.priority.mlperf import BENCHMARKS, EIGHT, EQUAL, MIXES, NAME, PUBLISHED, WITHIN
from gpuwise.experiments.priority.networks import predicted_gains
from gpuwise.experiments.rows import Row
from gpuwise.policies.gpu_types.prices import least_makespan_s
from gpuwise.service.offline.simulate import simulate

QUEUE = "10x1:P100+10x1:V100"


def rows(data: Path) -> list[Row]:
    """Every comparison."""
    return [
        *by_hand.rows(), *one_machine_per_job(), *queue(), *fairness(), *signals(), *three_types(),
    ]  # fmt: skip


def one_machine_per_job(counts: Sequence[int] = tuple(PUBLISHED)) -> list[Row]:
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
            found.append(reduced_row(metric + "total time reduced", _less(priority, even, "total_s")))
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
            note = f"up to {ours.most_passed} later jobs start before a job"
            metric = f"{count} jobs of {mix}, 20 GPUs, {policy}: total time reduced"
            found.append(Row(NAME, metric, "%", None, _less(ours, even, "total_s"), note=note))
    return found


def signals(count: int = 1000, load: float = 0.8) -> list[Row]:
    """Gains as measured, from utilization alone, or predicted from the network; the truth is as measured.

    All jobs at once, and jobs submitted one by one, so that GPUs are idle now and then.
    """
    found = []
    for mix, names in MIXES.items():
        mean_s = np.mean([(BENCHMARKS[name].p100_s + BENCHMARKS[name].v100_s) / 2 for name in names])
        submit_s = np.random.default_rng(1).exponential(mean_s / 20 / load, count).cumsum()
        kinds = mlperf.shuffled(names, count)
        for when, jobs in (("at once", mlperf.jobs(kinds)), (f"at load {load}", mlperf.jobs(kinds, submit_s))):
            even = run(jobs, QUEUE, "even")
            for how, (policy, more, note) in sources_of_gains().items():
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
    """The outcome of a run."""

    total_s: float
    """GPU time allocated to jobs."""
    makespan_s: float
    avg_jct_s: float
    most_passed: int
    """The maximum number of later jobs that started before a job."""
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
def sources_of_gains() -> dict[str, tuple[str, dict[str, Any], str]]:
    """The sources of gains: the policy, its beliefs, and a note."""
    found: dict[str, tuple[str, dict[str, Any], str]] = {
        "measured": ("gain", {}, ""),
        "by utilization alone": ("gain?signal=utilization", {}, "Amdahl's law with GPU utilization and FP32 peaks"),
    }
    if find_spec("torchvision"):
        gains = predicted_gains()
        note = ", ".join(f"{name} {gain:.2f} ({BENCHMARKS[name].gain:.2f})" for name, gain in gains.items())
        note = f"predicted (measured) gains: {note}; batches assumed"
        found["predicted from networks"] = ("gain", {"beliefs": mlperf.believing(gains)}, note)
    return found


def _less(ours: Outcome, than: Outcome, figure: str) -> float:
    return float(100 * (1 - getattr(ours, figure) / getattr(than, figure)))
