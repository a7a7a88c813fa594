"""MIG cut anew as jobs come and go, so that those on a GPU are fastest in sum (after MISO, Li et al., SoCC'22)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import NOTHING, Decision, Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES, JobStarted
from gpuwise.core.job.table import Shape, Status
from gpuwise.core.protocols import Placer
from gpuwise.policies.beliefs import speed, time_between_jobs_s, time_left_s
from gpuwise.policies.placing.eligible import Hosts
from gpuwise.policies.slices.cuts import Cut, Where, best_cut, on_piece
from gpuwise.policies.slices.mig_gpus import Gpu, Gpus, holds_cut_or_whole, may_slice, why_unplaced
from gpuwise.policies.slices.moves import bring_back, join_empty, promote, start_uncut

PAUSES = 2
"""Every cut is reckoned with the one that will undo it."""


@dataclass(frozen=True)
class DynamicMig:
    """Cuts each GPU for the jobs on it, and again when that lets them run faster in sum by more than it costs."""

    name = "mig"
    wakes_on = CAPACITY_CHANGES | {JobStarted}
    repartition_s: float = 10.0
    """How long it is believed to take to cut an empty GPU."""
    look_at: int = 32
    """At how many GPUs, those with the fewest jobs, is looked when one is to be cut anew."""

    def __post_init__(self) -> None:
        if not 0 <= self.repartition_s < math.inf:
            raise GpuwiseError(f"policy {self.name!r}: repartition_s is {self.repartition_s}; it must be 0 or more")
        if self.look_at < 0:
            raise GpuwiseError(f"policy {self.name!r}: look_at is {self.look_at}; it must be 0 or more")

    def rank(self, view: ClusterView, job: int) -> float:
        """By submission; those that were suspended so that their GPU could be cut come first."""
        first = -1e12 if view.status(job) is Status.SUSPENDED else 0.0
        return float(view.jobs.submit_s.item(job)) + first

    def holds(self, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
        """Whether an empty cluster holds a job, whole or cut."""
        return holds_cut_or_whole(capacity, shape, placer)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Places the line in order, up to the first that is better kept waiting; then makes use of what is left."""
        if not view.waiting and not view.placed:
            return NOTHING
        turn = _Turn(view.draft(), self)
        bring_back(turn.gpus)
        for job in turn.draft.waiting():
            if turn.draft.placement(job) is None and not turn.place(job) and not turn.gpus.stands_still(job):
                turn.wait_for_room(job)
                break
        else:
            turn.spread_out()
        return turn.draft.seal(turn.wake_at, turn.explain)


class _Option(NamedTuple):
    """A way to place a job; the speed that it adds, less what it costs, says how good it is."""

    worth: float
    placement: Placement
    where: Where
    cut: Cut | None = None
    """How the GPU is to be cut first."""
    jobs: tuple[int, ...] = ()
    """Who has to leave the GPU for that, and will come back."""


class _Turn:
    """One decision."""

    def __init__(self, draft: Draft, policy: DynamicMig) -> None:
        self.draft = draft
        self.view = draft.view
        self.gpus = Gpus(draft)
        self.head: int | None = None
        self.wake_at: float | None = None
        """When to look again: at a cut that would pay if no more jobs came, or at the first in line."""
        self._policy = policy

    def place(self, job: int) -> bool:
        """Places a job where it adds most speed, if anywhere."""
        shape = self.view.shape(job)
        if not may_slice(shape):
            return start_uncut(self.gpus, job)
        options = self._whole(job) or [*self._on_free_slices(job), *self._beside_others(job)]
        best = max(options, key=lambda option: option.worth, default=None)
        if best is None or not best.worth > 0:
            return not shape.alone and start_uncut(self.gpus, job)  # one that may share whole GPUs needs no slice
        self._carry_out(job, best)
        return True

    def _whole(self, job: int) -> list[_Option]:
        """GPUs for itself."""
        found = ((self.gpus.to_itself(job, where), where) for where in self.gpus.whole(job))
        return [_Option(each[0], each[1], where, each[2]) for each, where in found if each is not None and each[0] > 0]

    def _on_free_slices(self, job: int) -> list[_Option]:
        return [
            _Option(self.gpus.speed_on(job, where, piece), on_piece(where, piece), where)
            for where, piece in self.gpus.free_slices(job, one_of_a_kind=True)
        ]

    def _beside_others(self, job: int) -> list[_Option]:
        shape, type_of = self.view.shape(job), self.view.nodes.type_of
        types, hosts = self.draft.capacity.types_for(shape), Hosts(self.draft.capacity, shape).with_room(1)
        shared = [gpu for gpu in self.gpus.shared() if hosts >> gpu.where[0] & 1]
        gpus = [gpu for gpu in shared if type_of[gpu.where[0]] in types][: self._policy.look_at]
        found = (self._cut_for(gpu, (*gpu.jobs, job)) for gpu in gpus)
        return [option for option in found if option is not None]

    def _cut_for(self, gpu: Gpu, jobs: tuple[int, ...]) -> _Option | None:
        """The best cut of a GPU for those on it and perhaps one more, the last of ``jobs``.

        It adds speed until somebody ends, or comes; for that, those on the GPU stand still while it is cut.
        """
        cut = best_cut(gpu.kind, [self.gpus.row(job, gpu.kind, gpu.where) for job in jobs])
        view, table = self.view, self.view.jobs
        now = [speed(view, job, view.placed[job]) for job in gpu.jobs]
        if cut is None or any(math.isnan(each) for each in now):
            return None
        pause_s = self._policy.repartition_s + max(
            table.suspend_s.item(job) + table.resume_s.item(job) for job in gpu.jobs
        )
        places = [on_piece(gpu.where, cut.slices[number]) for number in cut.of]
        lasts_s = min(time_left_s(view, job, speed(view, job, at)) for job, at in zip(jobs, places, strict=True))
        # Σ speeds after − Σ speeds before − what the pauses cost, spread over the time that the cut lasts
        worth = cut.speed - sum(now) - sum(now) * PAUSES * pause_s / max(lasts_s, 1e-9)
        if len(jobs) == len(gpu.jobs) and worth > 0:  # a cut that the next job to come to this GPU will undo
            undisturbed_s = time_between_jobs_s(view)
            worth -= sum(now) * PAUSES * pause_s / undisturbed_s
            if worth <= 0:
                self.wake_at = self.view.now_s + undisturbed_s
        return _Option(worth, places[-1], gpu.where, cut, tuple(gpu.jobs))

    def _carry_out(self, job: int | None, option: _Option) -> None:
        for resident in option.jobs:
            self.draft.suspend(resident)
        if option.cut is not None:
            self.draft.cut(*option.where, option.cut.slices)
            taken = None if job is None else option.placement.grants[0].slice_start
            others = {piece.start for piece in option.cut.slices} - {taken}
            self.gpus.held |= {(option.where, start) for start in others if option.jobs}
        elif option.placement.grants[0].slice_start < 0:
            self.gpus.make_whole(option.where)
        if job is not None:
            self.draft.start(job, option.placement)

    def spread_out(self) -> None:
        """Moves jobs to free places that are better, and cuts GPUs anew where those on them leave room."""
        if self.gpus.held:
            return
        join_empty(self.gpus)
        promote(self.gpus)
        free = self.draft.capacity.free_slices
        with_room = [gpu for gpu in self.gpus.shared() if free.get(gpu.where)]
        for gpu in with_room[: self._policy.look_at]:
            option = self._cut_for(gpu, tuple(gpu.jobs))
            if option is not None and option.worth > 0:
                self._carry_out(None, option)

    def wait_for_room(self, job: int) -> None:
        """Nobody passes a job; it is looked at again when somebody should have ended, in case nobody does.

        One look is enough for each: what is believed of those that should have ended does not change any more.
        """
        placed = [(each, at) for each, at in self.view.placed.items() if self.view.work_left_s(each) > 0]
        first_s = min(
            (time_left_s(self.view, each, speed(self.view, each, at)) for each, at in placed), default=math.inf
        )
        self.head, self.wake_at = job, self.view.now_s + first_s + 1.0 if first_s < math.inf else None

    def explain(self, job: int) -> Reason:
        """Why a job waits."""
        view = self.view
        reason = self.draft.explain(job)
        if reason.code is Why.NO_SUCH_NODE:
            return reason
        if reason.code is not Why.NEVER_FITS and self.gpus.stands_still(job):
            return Reason(Why.NO_SPEED)
        if self.head is not None and job != self.head:
            return Reason(Why.BEHIND, {"ahead": view.job_id(self.head), "gpus": view.shape(self.head).gpus})
        if not may_slice(view.shape(job)):
            return reason
        return why_unplaced(view, job, reason)
