"""Jobs that change slices: those that move to better ones, and those that resume after their GPU was partitioned."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from gpuwise.core.commands import Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.beliefs import speed, time_left_s
from gpuwise.policies.slices.mig_gpus import MigGpus, start_without_slices
from gpuwise.policies.slices.partitions import Where, alone, assign, may_slice, on_mig_slice

WORTH_MOVING = 0.05
"""A job is moved if that saves at least this part of the time it still needs."""

Place = tuple[Where, Placement]


def free_places(gpus: MigGpus, job: int, one_of_a_kind: bool = False) -> dict[Place, float]:
    """Free slices and idle GPUs, and how fast a job is believed to be there."""
    found = {
        (where, on_mig_slice(where, piece)): gpus.speed_on(job, where, piece)
        for where, piece in gpus.free_slices(job, one_of_a_kind)
    }
    idle = gpus.draft.capacity.idle
    for where in gpus.whole(job) if gpus.view.shape(job).alone else ():
        if idle[where[0]] >> where[1] & 1:
            found[where, alone(where)] = speed(gpus.view, job, alone(where))
    return {place: believed for place, believed in found.items() if believed > 0}


def resume_suspended(gpus: MigGpus) -> None:
    """Resumes jobs that were suspended to partition their GPU; reserves slices for those that are still saving."""
    view, draft = gpus.view, gpus.draft
    status = view.column("status")
    jobs = [
        job
        for job in np.flatnonzero((status == Status.SUSPENDED) | (status == Status.SUSPENDING)).tolist()
        if may_slice(view.shape(job)) and not view.jobs.held.item(job)
    ]
    open_to = [free_places(gpus, job) for job in jobs]
    places = list(dict.fromkeys(place for each in open_to for place in each))
    if not places:
        return
    values = np.array([[each.get(place, 0.0) for place in places] for each in open_to])
    for number, at in assign(values):
        job, (where, placement) = jobs[number], places[at]
        if job in view.waiting:
            with suppress(OverAllocationError):  # the jobs before it took the CPUs
                draft.start(job, placement)
        else:
            gpus.reserved.add((where, placement.grants[0].slice_start))


def promote(gpus: MigGpus) -> None:
    """Moves jobs to free slices and GPUs where they are believed to end sooner, the cost of the move included."""
    view, draft = gpus.view, gpus.draft
    largest = _largest_free(gpus)
    for job, now in sorted(view.placed.items(), key=lambda each: each[1].milli):  # the smallest first
        if now.milli >= largest:
            break
        if now.sharing is not Sharing.MIG or now.tasks or draft.placement(job) != now or not gpus.runs(job):
            continue
        better = free_places(gpus, job, one_of_a_kind=True)
        if not better:
            continue
        place = max(better, key=better.__getitem__)
        now_s = time_left_s(view, job, speed(view, job, now))
        then_s = time_left_s(view, job, better[place]) + view.jobs.migrate_s.item(job)
        if then_s < now_s * (1 - WORTH_MOVING):
            draft.move(job, place[1])


def _largest_free(gpus: MigGpus) -> int:
    """The largest share of a GPU that is free anywhere."""
    capacity = gpus.draft.capacity
    if any(capacity.idle_total):
        return WHOLE_GPU_MILLI
    return max((piece.milli for where in gpus.partitioned() for piece in capacity.free_slices[where]), default=0)


def start_on_whole_gpus(gpus: MigGpus, job: int) -> bool:
    """Starts a job on whole GPUs, after undoing the partitions of empty ones if there are no others."""
    if start_without_slices(gpus.draft, job):
        return True
    unpartition_empty(gpus)
    return start_without_slices(gpus.draft, job)


def unpartition_empty(gpus: MigGpus) -> None:
    """Undoes the partitions of empty GPUs."""
    for where in list(gpus.empty()):
        gpus.unpartition(where)
