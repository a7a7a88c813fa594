"""Least attained service: Tiresias' discretized two-dimensional form, for when run times are not known."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.ranking import outranked, start_or_preempt

QUEUE = 1e10
"""Ranks of one queue lie this far from those of the next; within a queue they are times, in seconds."""


@dataclass(frozen=True)
class LeastAttainedService:
    """Jobs that have had little GPU time (time × GPUs) rank above those that have had much.

    Attained service is divided into queues at ``thresholds_gpu_s``. In a queue running jobs rank highest, then the
    others in the order they joined it; a job that was preempted by an earlier queue is back at the head, one that has
    just dropped into the queue is at the end (Gu et al., NSDI'19; order and thresholds as in the authors' simulator).
    """

    name = "las"
    wakes_on = CAPACITY_CHANGES
    thresholds_gpu_s: tuple[float, ...] = (3250.0, 7200.0)

    def __post_init__(self) -> None:
        if list(self.thresholds_gpu_s) != sorted({limit for limit in self.thresholds_gpu_s if limit > 0}):
            raise GpuwiseError(f"policy 'las': thresholds_gpu_s is {self.thresholds_gpu_s}; it must rise from above 0")

    def rank(self, view: ClusterView, job: int) -> float:
        """The queue of a job that begins to wait, and its place in it."""
        attained = view.attained_gpu_s(job)
        queue = bisect_right(self.thresholds_gpu_s, attained + 1e-6)
        if attained > 0 and not self._just_dropped(attained, queue):
            head = view.waiting.first_key(queue * QUEUE)
            if head < (queue + 1) * QUEUE:
                return head - 1e-3
        return queue * QUEUE + view.now_s

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """The queues of running jobs: ahead of those that wait, except for one that drops into the queue now."""
        attained = view.attained_of(jobs) + 1e-6
        limits = np.array([0.0, *self.thresholds_gpu_s])
        queues = np.searchsorted(limits[1:], attained, side="right")
        reached = limits[queues]
        dropped = (queues > 0) & (attained - reached < 1e-3) & (view.jobs.attained_gpu_s[jobs] + 1e-6 < reached)
        ranks: Array = queues * QUEUE + np.where(dropped, view.now_s, -QUEUE / 2)
        return ranks

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts by queue, suspending jobs of later queues; decides again when a running job drops into the next."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        start_or_preempt(draft, self)
        jobs_wait = len(view.waiting) > len(draft.started())
        wake_at = self._next_drop_s(view, draft) if jobs_wait else None
        return draft.seal(wake_at=wake_at, reasons=outranked(draft))

    def _just_dropped(self, attained: float, queue: int) -> bool:
        return queue > 0 and attained - self.thresholds_gpu_s[queue - 1] < 1e-3

    def _next_drop_s(self, view: ClusterView, draft: Draft) -> float | None:
        """When the first running job will have attained enough to fall into a later queue."""
        running = view.placed_jobs()
        limits = np.array([*self.thresholds_gpu_s, np.inf])
        attained = view.attained_of(running) + 1e-6
        gpus = np.maximum(view.jobs.held_gpus[running], 1e-3)
        drops_s = (limits[np.searchsorted(limits, attained, side="right")] - attained) / gpus
        soonest = float(drops_s.min(initial=np.inf))
        for job in draft.started():
            shape, had = view.shape(job), view.attained_gpu_s(job) + 1e-6
            limit = float(limits[np.searchsorted(limits, had, side="right")])
            soonest = min(soonest, (limit - had) / max(shape.gpus * shape.milli / WHOLE_GPU_MILLI, 1e-3))
        return view.now_s + round(soonest, 6) + 2e-6 if math.isfinite(soonest) else None
