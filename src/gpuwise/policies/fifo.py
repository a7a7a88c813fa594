"""First in, first out: strictly, or with EASY backfill."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import NOTHING, Decision, Explain, Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError, OverAllocationError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.life_cycle import Status


@dataclass(frozen=True)
class Fifo:
    """Strictly by submission: no job starts before one that was submitted earlier."""

    name = "fifo"
    wakes_on = CAPACITY_CHANGES

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs from the head of the queue until one does not fit."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        for job in draft.waiting():
            if not draft.start(job):
                return draft.seal(reasons=_behind(draft, job))
        return draft.seal()


@dataclass(frozen=True)
class EasyBackfill:
    """By submission, but a later job may pass if it does not delay the reservation of the first in the queue."""

    name = "fifo-backfill"
    wakes_on = CAPACITY_CHANGES
    depth: int = 500
    """The number of jobs behind the first that are considered."""

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise GpuwiseError(f"policy {self.name!r}: depth is {self.depth}; it must be 0 or more")

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs from the head of the queue, reserves GPUs for the first that does not fit, and backfills."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        reservation: Reservation | None = None
        looked_at = 0
        for job in draft.waiting():
            if reservation is not None:
                looked_at += 1
                if looked_at > self.depth:
                    break
                reservation.backfill(job)
            elif not draft.start(job):
                reservation = Reservation(draft, job)
        return draft.seal(reasons=reservation.explain if reservation else None)


class Reservation:
    """When and where the first job in the queue will start, if running jobs end when they are believed to."""

    def __init__(self, draft: Draft, head: int) -> None:
        self._draft = draft
        self._head = head
        self.at_s = math.inf
        self._then = draft.capacity.fork()
        self._delayed: set[int] = set()
        self._reserve()

    def _reserve(self) -> None:
        view, draft = self._draft.view, self._draft
        shape = view.shape(self._head)
        running = [*view.placed.items(), *((job, draft.placement(job)) for job in draft.started())]
        left = ((_left_s(view, job, at), job, at) for job, at in running if at is not None)
        ends = sorted(each for each in left if each[0] < math.inf)  # a job without progress does not end
        for remaining_s, job, at in ends:
            self._then.give(at, view.shape(job))
            found = draft.find_in(self._then, self._head)
            if found is not None:
                self.at_s = view.now_s + remaining_s
                self._then.take(found, shape)
                return

    def backfill(self, job: int) -> bool:
        """Starts a job now if it ends before the reservation or does not use its GPUs."""
        draft = self._draft
        found = draft.find(job)
        if found is None:
            draft.closed.add(draft.view.shape(job).id)
            return False
        ends_s = draft.view.now_s + draft.view.time_left_s(job, found)
        if ends_s <= self.at_s or self._stays_clear(self._then, job, found):
            return draft.start(job, found)
        self._delayed.add(job)
        return False

    def _stays_clear(self, then: Capacity, job: int, placement: Placement) -> bool:
        try:
            then.take(placement, self._draft.view.shape(job))
        except OverAllocationError:
            return False
        return True

    def explain(self, job: int) -> Reason:
        """Why a job waits: for room, or so as not to delay the first job."""
        view = self._draft.view
        if job not in self._delayed:
            return self._draft.explain(job)
        return Reason(Why.RESERVED, {"ahead": view.job_id(self._head), "at_s": self.at_s})


def _left_s(view: ClusterView, job: int, at: Placement) -> float:
    """Believed time until a job ends: at its rate if it runs, else as on the placement it starts on."""
    return view.time_left_s(job, None if view.status(job) is Status.RUNNING else at)


def _behind(draft: Draft, head: int) -> Explain:
    view = draft.view
    numbers: dict[str, float | str] = {"ahead": view.job_id(head), "gpus": view.shape(head).gpus}

    def explain(job: int) -> Reason:
        return draft.explain(job) if job == head else Reason(Why.BEHIND, numbers)

    return explain
