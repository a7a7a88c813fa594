"""By urgency: earliest deadline first, and by priority."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.tables import Array
from gpuwise.policies.ranking import outranked, start_in_order, start_or_preempt


@dataclass(frozen=True)
class EarliestDeadline:
    """The job whose deadline is next ranks highest; jobs without one rank lowest, in order of submission."""

    name = "edf"
    wakes_on = CAPACITY_CHANGES
    preempt: bool = True

    def rank(self, view: ClusterView, job: int) -> float:
        """The deadline."""
        deadline_s: float = view.jobs.deadline_s.item(job)
        return deadline_s

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """The deadlines of running jobs."""
        deadlines: Array = view.jobs.deadline_s[jobs]
        return deadlines

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs by rank, suspending those that rank lower where that is allowed."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        if not self.preempt:
            start_in_order(draft)
            return draft.seal()
        start_or_preempt(draft, self)
        return draft.seal(reasons=outranked(draft))


@dataclass(frozen=True)
class Priority(EarliestDeadline):
    """The job with the highest priority ranks highest, among equals the first submitted; no job is preempted."""

    name = "priority"
    preempt: bool = False

    def rank(self, view: ClusterView, job: int) -> float:
        """The priority, highest first."""
        return -float(view.jobs.priority.item(job))

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """The priorities of running jobs."""
        return -view.jobs.priority[jobs].astype("f8")


@dataclass(frozen=True)
class PreemptivePriority(Priority):
    """The job with the highest priority ranks highest, and preempts those with a lower one."""

    name = "priority-preempt"
    preempt: bool = True
