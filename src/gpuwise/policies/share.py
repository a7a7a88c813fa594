"""Sharing as a decision: each job alone, in turns, beside others or on a MIG slice, whichever costs least."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import NOTHING, Decision, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer
from gpuwise.policies.beliefs import speed, time_left_s
from gpuwise.policies.packing.offers import Offer, Offers, Terms
from gpuwise.policies.slices.cuts import Where
from gpuwise.policies.slices.mig_gpus import Gpus, alone, holds_cut_or_whole, room_numbers, why_unplaced
from gpuwise.policies.slices.moves import start_uncut


@dataclass(frozen=True)
class Share(Terms):
    """Weighs for each job a whole GPU, a time slice, a part beside others and a MIG slice by time and price."""

    name = "share"
    wakes_on = CAPACITY_CHANGES
    depth: int = 32
    """How many waiting jobs are looked at."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 1:
            raise GpuwiseError(f"policy {self.name!r}: depth is {self.depth}; it must be 1 or more")

    def feasible(self, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
        """Whether an empty cluster holds a job, whole or cut."""
        return holds_cut_or_whole(capacity, shape, placer)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Gives each job of the line its cheapest offer, or lets it wait where that is cheaper still."""
        if not view.waiting:
            return NOTHING
        turn = _Turn(view.draft(), self)
        line = list(turn.draft.waiting())[: self.depth]
        for at, job in enumerate(line):
            if not turn.place(job, line[at + 1 :]) and not turn.gpus.stands_still(job):
                turn.head = job
                break
        return turn.draft.seal(reasons=turn.explain)


class _Turn:
    """One decision."""

    def __init__(self, draft: Draft, policy: Share) -> None:
        self.draft = draft
        self.view = draft.view
        self.gpus = Gpus(draft)
        self.head: int | None = None
        """A gang that does not fit; nobody behind it is placed, so that its turn comes."""
        self.patient: dict[int, float] = {}
        """Jobs for which it is cheaper to wait for a GPU of their own, and when that is believed to be free."""
        self._offers = Offers(self.gpus, policy)
        self._policy = policy
        self._ends_s = sorted(self._ends())

    def place(self, job: int, line: list[int]) -> bool:
        """Places a job or lets it wait; False for a gang that does not fit: nobody passes it."""
        shape = self.view.shape(job)
        if shape.gpus != 1 or shape.roles:
            return start_uncut(self.gpus, job)
        best = min(self._offers.to(job, line), key=lambda offer: offer.cost, default=None)
        waits = self._wait(job, line, math.inf if best is None else best.cost)
        if best is not None and not waits:
            self._take(job, best)
        elif not waits and not self.gpus.held and not self.gpus.stands_still(job):
            self._keep_one_for(job)
        return True

    def _keep_one_for(self, job: int) -> None:
        """Lets a GPU empty for a job that finds nothing, so that others do not pass it for ever: the first to do so."""
        suits = self._suits(self.view.shape(job))
        empty_s: dict[Where, float] = {}
        for other, held in self.view.placed.items():
            left_s = time_left_s(self.view, other, speed(self.view, other, held))
            for where in held.devices():
                empty_s[where] = max(empty_s.get(where, 0.0), left_s)
        usable = [where for where in empty_s if suits(where[0])]
        if usable:
            self.gpus.keep(min(usable, key=lambda where: (empty_s[where], where)))

    def _suits(self, shape: Shape) -> Callable[[int], bool]:
        """Tells which nodes a job may have GPUs on once they are free."""
        capacity, type_of = self.view.capacity, self.view.nodes.type_of
        types, allowed = capacity.types_for(shape), capacity.allowed(shape)
        return lambda node: type_of[node] in types and capacity.up[node] and bool(allowed >> node & 1)

    def _take(self, job: int, offer: Offer) -> None:
        if offer.cut is not None:
            self.draft.cut(*offer.where, offer.cut.slices)
        elif offer.placement.sharing is not Sharing.MIG:
            self.gpus.make_whole(offer.where)
        self.draft.start(job, offer.placement)

    def _ends(self) -> list[tuple[float, int]]:
        """When GPUs that are held alone are believed to come free, and on which node."""
        found = []
        for job, held in self.view.placed.items():
            if held.sharing is Sharing.EXCLUSIVE and held.gpus == 1:
                left_s = time_left_s(self.view, job, speed(self.view, job, held))
                found.append((left_s, held.grants[0].node))
        return found

    def _wait(self, job: int, line: list[int], cost: float) -> bool:
        """Lets a job wait for the next GPU that comes free and is not waited for yet, if that is cheaper."""
        shape = self.view.shape(job)
        suits = self._suits(shape)
        for at, (free_s, node) in enumerate(self._ends_s):
            if shape.alone and suits(node) and free_s < math.inf:
                time_s = time_left_s(self.view, job, speed(self.view, job, alone((node, 0))))
                alone_cost = self._offers.cost(node, 1.0, time_s, len(line)) + self._policy.time_worth * free_s
                if not alone_cost < cost:
                    return False
                del self._ends_s[at]
                self.patient[job] = free_s
                return True
        return False

    def explain(self, job: int) -> Reason:
        """Why a job waits."""
        view, reason = self.view, self.draft.explain(job)
        if reason.code is Why.NO_SUCH_NODE:
            return reason
        if reason.code is not Why.NEVER_FITS and self.gpus.stands_still(job):
            return Reason(Why.NO_SPEED)
        if job in self.patient:
            return Reason(Why.BETTER_LATER, {**room_numbers(view, job, reason), "free_s": self.patient[job]})
        if self.head is not None and job != self.head:
            return Reason(Why.BEHIND, {"ahead": view.job_id(self.head), "gpus": view.shape(self.head).gpus})
        if view.shape(job).gpus != 1 or view.shape(job).roles:
            return reason
        return why_unplaced(view, job, reason)
