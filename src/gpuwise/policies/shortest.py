"""Shortest first: by run time, by remaining time, by remaining GPU time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.ranking import outranked, repack, start_in_order, start_or_preempt


@dataclass(frozen=True)
class ShortestJobFirst:
    """The shortest job that fits starts first; no job is preempted."""

    name = "sjf"
    wakes_on = CAPACITY_CHANGES

    def rank(self, view: ClusterView, job: int) -> float:
        """Believed run time."""
        return view.work_left_s(job)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts what fits, shortest first."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        start_in_order(draft)
        return draft.seal()


@dataclass(frozen=True)
class ShortestRemainingTime:
    """The job with the least time left ranks highest, and preempts those with more."""

    name = "srtf"
    wakes_on = CAPACITY_CHANGES
    repack: bool = False
    """Whether running jobs are moved to make room, by placing all jobs again at each decision."""

    def rank(self, view: ClusterView, job: int) -> float:
        """Believed time left."""
        return view.work_left_s(job)

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """Believed time left of running jobs."""
        return view.work_left_of(jobs)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs by rank, suspending those that rank lower."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        if self.repack:
            repack(draft, self)
        else:
            start_or_preempt(draft, self)
        return draft.seal(reasons=outranked(draft))


@dataclass(frozen=True)
class ShortestRemainingService(ShortestRemainingTime):
    """The job with the least GPU time left (time × GPUs) ranks highest, and preempts those with more."""

    name = "srsf"

    def rank(self, view: ClusterView, job: int) -> float:
        """Believed GPU time left."""
        shape = view.shape(job)
        return view.work_left_s(job) * shape.gpus * shape.milli / WHOLE_GPU_MILLI

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """Believed GPU time left of running jobs, by the GPUs they asked for, as for waiting ones."""
        shapes = view.jobs.shapes
        asked = np.fromiter((shape.gpus * shape.milli / WHOLE_GPU_MILLI for shape in shapes), "f8", len(shapes))
        remaining: Array = view.work_left_of(jobs) * asked[view.jobs.shape[jobs]]
        return remaining
