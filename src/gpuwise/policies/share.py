"""Sharing as a decision: each job alone, in time slices, beside others or on a MIG slice, whichever costs least."""

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
from gpuwise.policies.slices.mig_gpus import MigGpus, feasible_with_mig, room_numbers, why_unplaced
from gpuwise.policies.slices.moves import start_on_whole_gpus
from gpuwise.policies.slices.partitions import Where, alone


@dataclass(frozen=True)
class Share(Terms):
    """Compares for each job a whole GPU, a time slice, a part beside others and a MIG slice by time and price."""

    name = "share"
    wakes_on = CAPACITY_CHANGES
    depth: int = 32
    """The number of waiting jobs that are considered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 1:
            raise GpuwiseError(f"policy {self.name!r}: depth is {self.depth}; it must be 1 or more")

    def feasible(self, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
        """Whether a job fits on an empty cluster whose GPUs may be partitioned."""
        return feasible_with_mig(capacity, shape, placer)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Gives each job of the queue its cheapest offer, or lets it wait where that is cheaper still."""
        if not view.waiting:
            return NOTHING
        planner = _Planner(view.draft(), self)
        queue = list(planner.draft.waiting())[: self.depth]
        for at, job in enumerate(queue):
            if not planner.place(job, queue[at + 1 :]) and not planner.gpus.makes_no_progress(job):
                planner.head = job
                break
        return planner.draft.seal(reasons=planner.explain)


class _Planner:
    """Plans one decision."""

    def __init__(self, draft: Draft, policy: Share) -> None:
        self.draft = draft
        self.view = draft.view
        self.gpus = MigGpus(draft)
        self.head: int | None = None
        """A gang that does not fit; no job behind it is placed, so that it is not passed for ever."""
        self.better_later: dict[int, float] = {}
        """Jobs for which it is cheaper to wait for a GPU of their own, and when that is believed to be free."""
        self._offers = Offers(self.gpus, policy)
        self._policy = policy
        self._ends_s = sorted(self._ends())

    def place(self, job: int, behind: list[int]) -> bool:
        """Places a job or lets it wait; False for a gang that does not fit, which no job may pass."""
        shape = self.view.shape(job)
        if shape.gpus != 1 or shape.roles:
            return start_on_whole_gpus(self.gpus, job)
        best = min(self._offers.to(job, behind), key=lambda offer: offer.cost, default=None)
        waits = self._wait(job, behind, math.inf if best is None else best.cost)
        if best is not None and not waits:
            self._take(job, best)
        elif not waits and not self.gpus.reserved and not self.gpus.makes_no_progress(job):
            self._reserve_gpu_for(job)
        return True

    def _reserve_gpu_for(self, job: int) -> None:
        """Reserves the GPU that will be empty first for a job without offers, so that it is not passed for ever."""
        suits = self._suits(self.view.shape(job))
        empty_s: dict[Where, float] = {}
        for other, at in self.view.placed.items():
            left_s = time_left_s(self.view, other, speed(self.view, other, at))
            for where in at.devices():
                empty_s[where] = max(empty_s.get(where, 0.0), left_s)
        usable = [where for where in empty_s if suits(where[0])]
        if usable:
            self.gpus.reserve(min(usable, key=lambda where: (empty_s[where], where)))

    def _suits(self, shape: Shape) -> Callable[[int], bool]:
        """A test for nodes on which a job may have GPUs once they are free."""
        capacity, type_of = self.view.capacity, self.view.nodes.type_of
        types, allowed = capacity.types_for(shape), capacity.allowed(shape)
        return lambda node: type_of[node] in types and capacity.up[node] and bool(allowed >> node & 1)

    def _take(self, job: int, offer: Offer) -> None:
        if offer.partition is not None:
            self.draft.cut(*offer.where, offer.partition.slices)
        elif offer.placement.sharing is not Sharing.MIG:
            self.gpus.unpartition(offer.where)
        self.draft.start(job, offer.placement)

    def _ends(self) -> list[tuple[float, int]]:
        """When GPUs that one job has alone are believed to be free, and on which node."""
        found = []
        for job, at in self.view.placed.items():
            if at.sharing is Sharing.EXCLUSIVE and at.gpus == 1:
                left_s = time_left_s(self.view, job, speed(self.view, job, at))
                found.append((left_s, at.grants[0].node))
        return found

    def _wait(self, job: int, behind: list[int], cost: float) -> bool:
        """Lets a job wait for the next GPU to be free for which no other job waits, if that is cheaper."""
        shape = self.view.shape(job)
        suits = self._suits(shape)
        for at, (free_s, node) in enumerate(self._ends_s):
            if shape.alone and suits(node) and free_s < math.inf:
                time_s = time_left_s(self.view, job, speed(self.view, job, alone((node, 0))))
                alone_cost = self._offers.cost(node, 1.0, time_s, len(behind)) + self._policy.time_worth * free_s
                if not alone_cost < cost:
                    return False
                del self._ends_s[at]
                self.better_later[job] = free_s
                return True
        return False

    def explain(self, job: int) -> Reason:
        """Why a job waits."""
        view, reason = self.view, self.draft.explain(job)
        if reason.code is Why.NO_SUCH_NODE:
            return reason
        if reason.code is not Why.NEVER_FITS and self.gpus.makes_no_progress(job):
            return Reason(Why.NO_SPEED)
        if job in self.better_later:
            return Reason(Why.BETTER_LATER, {**room_numbers(view, job, reason), "free_s": self.better_later[job]})
        if self.head is not None and job != self.head:
            return Reason(Why.BEHIND, {"ahead": view.job_id(self.head), "gpus": view.shape(self.head).gpus})
        if view.shape(job).gpus != 1 or view.shape(job).roles:
            return reason
        return why_unplaced(view, job, reason)
