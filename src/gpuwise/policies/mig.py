"""MIG partitions that follow the jobs: those on a GPU are fastest in sum (after MISO, Li et al., SoCC'22)."""

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
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer
from gpuwise.policies.beliefs import speed, time_between_jobs_s, time_left_s
from gpuwise.policies.placing.eligible import Hosts
from gpuwise.policies.slices.mig_gpus import MigGpu, MigGpus, feasible_with_mig, why_unplaced
from gpuwise.policies.slices.moves import promote, resume_suspended, start_on_whole_gpus, unpartition_empty
from gpuwise.policies.slices.partitions import Partition, Where, best_partition, may_slice, on_mig_slice

PAUSES = 2
"""Every partitioning counts twice: with the one that will undo it."""


@dataclass(frozen=True)
class DynamicMig:
    """Partitions each GPU for the jobs on it, and again when they gain more speed in sum than that costs."""

    name = "mig"
    wakes_on = CAPACITY_CHANGES | {JobStarted}
    repartition_s: float = 10.0
    """How long it is believed to take to partition an empty GPU."""
    look_at: int = 32
    """The number of GPUs, those with the fewest jobs, that are considered for repartitioning."""

    def __post_init__(self) -> None:
        if not 0 <= self.repartition_s < math.inf:
            raise GpuwiseError(f"policy {self.name!r}: repartition_s is {self.repartition_s}; it must be 0 or more")
        if self.look_at < 0:
            raise GpuwiseError(f"policy {self.name!r}: look_at is {self.look_at}; it must be 0 or more")

    def rank(self, view: ClusterView, job: int) -> float:
        """By submission; jobs that were suspended to partition their GPU rank highest."""
        first = -1e12 if view.status(job) is Status.SUSPENDED else 0.0
        return float(view.jobs.submit_s.item(job)) + first

    def feasible(self, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
        """Whether a job fits on an empty cluster whose GPUs may be partitioned."""
        return feasible_with_mig(capacity, shape, placer)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Places the queue in order, up to the first job that should wait; then uses what is left."""
        if not view.waiting and not view.placed:
            return NOTHING
        planner = _Planner(view.draft(), self)
        resume_suspended(planner.gpus)
        for job in planner.draft.waiting():
            placed = planner.draft.placement(job) is not None or planner.place(job)
            if not placed and not planner.gpus.makes_no_progress(job):
                planner.wait_for_room(job)
                break
        else:
            planner.spread_out()
        return planner.draft.seal(planner.wake_at, planner.explain)


class _Option(NamedTuple):
    """A way to place a job; its worth is the speed it adds, less what it costs."""

    worth: float
    placement: Placement
    where: Where
    partition: Partition | None = None
    """How to partition the GPU first."""
    jobs: tuple[int, ...] = ()
    """Jobs on the GPU that are suspended for that and resume afterwards."""


class _Planner:
    """Plans one decision."""

    def __init__(self, draft: Draft, policy: DynamicMig) -> None:
        self.draft = draft
        self.view = draft.view
        self.gpus = MigGpus(draft)
        self.head: int | None = None
        self.wake_at: float | None = None
        """When to decide again: on a partition that would pay if no more jobs came, or on the head of the queue."""
        self._policy = policy

    def place(self, job: int) -> bool:
        """Places a job where it adds most speed, if anywhere."""
        shape = self.view.shape(job)
        if not may_slice(shape):
            return start_on_whole_gpus(self.gpus, job)
        options = self._whole(job) or [*self._on_free_slices(job), *self._beside_others(job)]
        best = max(options, key=lambda option: option.worth, default=None)
        if best is None or not best.worth > 0:  # a job that may share whole GPUs needs no slice
            return not shape.alone and start_on_whole_gpus(self.gpus, job)
        self._carry_out(job, best)
        return True

    def _whole(self, job: int) -> list[_Option]:
        """Whole GPUs."""
        found = ((self.gpus.to_itself(job, where), where) for where in self.gpus.whole(job))
        return [_Option(each[0], each[1], where, each[2]) for each, where in found if each is not None and each[0] > 0]

    def _on_free_slices(self, job: int) -> list[_Option]:
        return [
            _Option(self.gpus.speed_on(job, where, piece), on_mig_slice(where, piece), where)
            for where, piece in self.gpus.free_slices(job, one_of_a_kind=True)
        ]

    def _beside_others(self, job: int) -> list[_Option]:
        shape, type_of = self.view.shape(job), self.view.nodes.type_of
        types, hosts = self.draft.capacity.types_for(shape), Hosts(self.draft.capacity, shape).with_room(1)
        shared = [gpu for gpu in self.gpus.shared() if hosts >> gpu.where[0] & 1]
        gpus = [gpu for gpu in shared if type_of[gpu.where[0]] in types][: self._policy.look_at]
        found = (self._partition_for(gpu, (*gpu.jobs, job)) for gpu in gpus)
        return [option for option in found if option is not None]

    def _partition_for(self, gpu: MigGpu, jobs: tuple[int, ...]) -> _Option | None:
        """The best partition of a GPU for the jobs on it and perhaps one more, the last of ``jobs``.

        It adds speed until a job ends or joins; in exchange, the jobs on the GPU are suspended meanwhile.
        """
        partition = best_partition(gpu.kind, [self.gpus.profile_speeds(job, gpu.kind, gpu.where) for job in jobs])
        view, table = self.view, self.view.jobs
        now = [speed(view, job, view.placed[job]) for job in gpu.jobs]
        if partition is None or any(math.isnan(each) for each in now):
            return None
        pause_s = self._policy.repartition_s + max(
            table.suspend_s.item(job) + table.resume_s.item(job) for job in gpu.jobs
        )
        places = [on_mig_slice(gpu.where, partition.slices[number]) for number in partition.of]
        lasts_s = min(time_left_s(view, job, speed(view, job, at)) for job, at in zip(jobs, places, strict=True))
        # Σ speeds after − Σ speeds before − what the pauses cost, spread over the time that the partition lasts
        worth = partition.speed - sum(now) - sum(now) * PAUSES * pause_s / max(lasts_s, 1e-9)
        if len(jobs) == len(gpu.jobs) and worth > 0:  # the next job on this GPU will undo it
            undisturbed_s = time_between_jobs_s(view)
            worth -= sum(now) * PAUSES * pause_s / undisturbed_s
            if worth <= 0:
                self.wake_at = self.view.now_s + undisturbed_s
        return _Option(worth, places[-1], gpu.where, partition, tuple(gpu.jobs))

    def _carry_out(self, job: int | None, option: _Option) -> None:
        for resident in option.jobs:
            self.draft.suspend(resident)
        if option.partition is not None:
            self.draft.cut(*option.where, option.partition.slices)
            taken = None if job is None else option.placement.grants[0].slice_start
            others = {piece.start for piece in option.partition.slices} - {taken}
            self.gpus.reserved |= {(option.where, start) for start in others if option.jobs}
        elif option.placement.grants[0].slice_start < 0:
            self.gpus.unpartition(option.where)
        if job is not None:
            self.draft.start(job, option.placement)

    def spread_out(self) -> None:
        """Moves jobs to better slices and GPUs that are free, and repartitions GPUs with free slices."""
        if self.gpus.reserved:
            return
        unpartition_empty(self.gpus)
        promote(self.gpus)
        free = self.draft.capacity.free_slices
        with_room = [gpu for gpu in self.gpus.shared() if free.get(gpu.where)]
        for gpu in with_room[: self._policy.look_at]:
            option = self._partition_for(gpu, tuple(gpu.jobs))
            if option is not None and option.worth > 0:
                self._carry_out(None, option)

    def wait_for_room(self, job: int) -> None:
        """Lets no job pass this one, and decides again when the first running job should have ended.

        Once per job is enough: what is believed of a job that should have ended does not change any more.
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
        if reason.code is not Why.NEVER_FITS and self.gpus.makes_no_progress(job):
            return Reason(Why.NO_SPEED)
        if self.head is not None and job != self.head:
            return Reason(Why.BEHIND, {"ahead": view.job_id(self.head), "gpus": view.shape(self.head).gpus})
        if not may_slice(view.shape(job)):
            return reason
        return why_unplaced(view, job, reason)
