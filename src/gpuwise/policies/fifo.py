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
    """Strictly by submission: a job that does not fit holds up all behind it."""

    name = "fifo"
    wakes_on = CAPACITY_CHANGES

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts from the head of the line until one does not fit."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        for job in draft.waiting():
            if not draft.start(job):
                return draft.seal(reasons=_behind(draft, job))
        return draft.seal()


@dataclass(frozen=True)
class EasyBackfill:
    """By submission, but a later job may pass if it does not delay the reservation of the first in line."""

    name = "fifo-backfill"
    wakes_on = CAPACITY_CHANGES
    depth: int = 500
    """How many jobs behind the first are looked at."""

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise GpuwiseError(f"policy {self.name!r}: depth is {self.depth}; it must be 0 or more")

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts from the head of the line, reserves for the first that does not fit, and fills in behind it."""
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
                reservation.fill_in(job)
            elif not draft.start(job):
                reservation = Reservation(draft, job)
        return draft.seal(reasons=reservation.explain if reservation else None)


class Reservation:
    """When and where the first in line will start, if running jobs end when they are believed to."""

    def __init__(self, draft: Draft, head: int) -> None:
        self._draft = draft
        self._head = head
        self.at_s = math.inf
        self._then = draft.capacity.fork()
        self._held_back: set[int] = set()
        self._reserve()

    def _reserve(self) -> None:
        view, draft = self._draft.view, self._draft
        shape = view.shape(self._head)
        holders = [*view.placed.items(), *((job, draft.placement(job)) for job in draft.started())]
        left = ((_left_s(view, job, held), job, held) for job, held in holders if held is not None)
        ends = sorted(each for each in left if each[0] < math.inf)  # who makes no progress does not leave
        for remaining_s, job, held in ends:
            self._then.give(held, view.shape(job))
            found = draft.find_in(self._then, self._head)
            if found is not None:
                self.at_s = view.now_s + remaining_s
                self._then.take(found, shape)
                return

    def fill_in(self, job: int) -> bool:
        """Starts a job now if it ends before the reservation or stays out of its way."""
        draft = self._draft
        found = draft.find(job)
        if found is None:
            draft.closed.add(draft.view.shape(job).id)
            return False
        ends_s = draft.view.now_s + draft.view.time_left_s(job, found)
        if ends_s <= self.at_s or self._stays_clear(self._then, job, found):
            return draft.start(job, found)
        self._held_back.add(job)
        return False

    def _stays_clear(self, then: Capacity, job: int, placement: Placement) -> bool:
        try:
            then.take(placement, self._draft.view.shape(job))
        except OverAllocationError:
            return False
        return True

    def explain(self, job: int) -> Reason:
        """Why a job waits: for room, or so as not to delay the first in line."""
        view = self._draft.view
        if job not in self._held_back:
            return self._draft.explain(job)
        return Reason(Why.RESERVED, {"ahead": view.job_id(self._head), "at_s": self.at_s})


def _left_s(view: ClusterView, job: int, held: Placement) -> float:
    """Believed time until a job leaves: at its rate if it runs, else as on the placement it starts on."""
    return view.time_left_s(job, None if view.status(job) is Status.RUNNING else held)


def _behind(draft: Draft, head: int) -> Explain:
    view = draft.view
    numbers: dict[str, float | str] = {"ahead": view.job_id(head), "gpus": view.shape(head).gpus}

    def explain(job: int) -> Reason:
        return draft.explain(job) if job == head else Reason(Why.BEHIND, numbers)

    return explain
