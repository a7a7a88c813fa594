"""Least attained service: Tiresias' discretized two-dimensional form, for when run times are not known."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.tables import Array
from gpuwise.core.units import HOUR_S
from gpuwise.core.view import ClusterView
from gpuwise.policies.ranking import outranked, start_or_preempt


@dataclass(frozen=True)
class LeastAttainedService:
    """Jobs that have had little GPU time (time × GPUs) come before those that have had much.

    Attained service is cut into queues at ``thresholds_gpu_s``; in a queue the first submitted comes first, so jobs of
    the same queue do not interrupt each other (Gu et al., NSDI'19).
    """

    name = "las"
    wakes_on = CAPACITY_CHANGES
    thresholds_gpu_s: tuple[float, ...] = (HOUR_S,)

    def rank(self, view: ClusterView, job: int) -> float:
        """The queue a waiting job is in."""
        return float(bisect_right(self.thresholds_gpu_s, view.attained_gpu_s(job)))

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """The queues of jobs that hold GPUs."""
        queues: Array = np.searchsorted(self.thresholds_gpu_s, view.attained_of(jobs) + 1e-6, side="right").astype("f8")
        return queues

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts by queue, suspending jobs of later queues; looks again when a running job drops into the next."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        start_or_preempt(draft, self)
        return draft.seal(wake_at=self._next_drop_s(view), reasons=outranked(draft))

    def _next_drop_s(self, view: ClusterView) -> float | None:
        """When the first running job will have attained enough to fall into a later queue."""
        jobs = np.fromiter(view.placed, dtype="i8", count=len(view.placed))
        gpus = np.fromiter((view.placed[job].gpus for job in jobs.tolist()), dtype="f8", count=len(jobs))
        attained = view.attained_of(jobs)
        limits = np.append(np.asarray(self.thresholds_gpu_s), np.inf)
        until = limits[np.searchsorted(limits, attained + 1e-6, side="right").clip(max=len(limits) - 1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            drops = (until - attained) / gpus
        soonest = float(np.min(drops[gpus > 0], initial=np.inf))
        return round(view.now_s + soonest, 6) if np.isfinite(soonest) else None
