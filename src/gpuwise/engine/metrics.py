"""What a run came to, in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.tables import Array


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures a run is compared by. Times are in seconds, fractions are of the whole cluster over the makespan."""

    jobs: int
    avg_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    makespan_s: float
    avg_queue_s: float
    """Time without GPUs: before the first start, and between a suspension and what follows it."""
    gpu_util_frac: float
    """GPU time in which steps were made, weighted by each job's own utilization where it is known; jobs that share a
    GPU add up, to a whole one at most."""
    gpu_alloc_frac: float
    """GPU time that was allocated."""
    decisions: int
    decide_p50_s: float
    decide_max_s: float
    preemptions: int
    migrations: int
    deadline_misses: int
    cost_usd: float | None
    """The whole cluster for as long as the jobs took; None where a price is not known."""
    finished: int
    failed: int

    def as_dict(self) -> dict[str, float | int | None]:
        """The figures by name; what is not a number becomes None."""
        return {name: None if _unknown(value) else value for name, value in asdict(self).items()}


Offered = Callable[[float, float], tuple[float, float]]
"""GPU time and price, in USD, of the nodes that were there between two times; NaN is a price that is not known."""


def measure(
    state: ClusterState, decide_s: Sequence[float], used_gpu_s: float, offered: Offered | None = None
) -> Metrics:
    """The figures of a run that has ended, in which GPUs were in use for ``used_gpu_s`` in all.

    ``offered`` is for clusters whose nodes joined and left; else all nodes were there all the time.
    """
    jobs, count = state.jobs, len(state.jobs)
    ended = np.isfinite(jobs.finish_s[:count])
    status = jobs.status[:count]
    submit_s, finish_s = jobs.submit_s[:count][ended], jobs.finish_s[:count][ended]
    jct_s = finish_s - submit_s
    makespan_s = float(finish_s.max() - submit_s.min()) if len(jct_s) else 0.0
    gpu_s, usd = makespan_s * state.nodes.total_gpus, _usd(state, makespan_s)
    if offered is not None and len(jct_s):
        gpu_s, usd = offered(float(submit_s.min()), float(finish_s.max()))
    allocated = jobs.attained_gpu_s[:count]
    took = np.asarray(decide_s) if len(decide_s) else np.zeros(1)
    return Metrics(
        jobs=count,
        avg_jct_s=_mean(jct_s),
        p50_jct_s=_percentile(jct_s, 50),
        p99_jct_s=_percentile(jct_s, 99),
        makespan_s=makespan_s,
        avg_queue_s=_mean(jct_s - jobs.held_s[:count][ended]),
        gpu_util_frac=used_gpu_s / gpu_s if gpu_s else 0.0,
        gpu_alloc_frac=float(allocated.sum() / gpu_s) if gpu_s else 0.0,
        decisions=len(decide_s),
        decide_p50_s=float(np.median(took)),
        decide_max_s=float(took.max()),
        preemptions=int(jobs.preemptions[:count].sum()),
        migrations=int(jobs.migrations[:count].sum()),
        deadline_misses=int((finish_s > jobs.deadline_s[:count][ended]).sum()),
        cost_usd=None if math.isnan(usd) else usd,
        finished=int((status == Status.SUCCEEDED).sum()),
        failed=int((status == Status.FAILED).sum()),
    )


def _usd(state: ClusterState, makespan_s: float) -> float:
    per_hour = float(state.nodes.usd_per_hour[: len(state.nodes)].sum())
    return per_hour * makespan_s / 3600


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else math.nan


def _percentile(values: Array, percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else math.nan


def _unknown(value: float | int | None) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
