"""The time that sharing a GPU saves and costs, by the believed rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heapreplace

import numpy as np

from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.policies.beliefs import speeds
from gpuwise.policies.packing.shared_gpus import SharedGpus


class Savings:
    """Time that jobs save by sharing a GPU, or by no longer sharing it.

    Speeds are relative to the one that a job's run time is declared for. With speeds s together and b apart, and work
    w left, job i is together with a newcomer for t(i) = min(w(newcomer)/s(newcomer), w(i)/s(i)); the newcomer is with
    others for as long as the last of them. Each loses t·(1 − s/b).
    """

    def __init__(self, view: ClusterView, gpus: SharedGpus) -> None:
        self._view = view
        self._gpus = gpus
        self._known: dict[tuple[int, ...], list[float]] = {}

    def of_joining(self, job: int, gpu: int, wait_s: float) -> float | None:
        """The least time saved if a job joins those on a GPU now instead of waiting; None if that is unknown."""
        here = self._gpus.jobs[gpu]
        together = self._speeds([*here, job], gpu)
        before, alone = self._cached_speeds(here, gpu), self._cached_speeds([job], gpu)
        if not _are_known(before, alone, together):
            return None
        if sum(together) <= sum(before):
            return 0.0
        return wait_s - self._lost_s([*here, job], together, before + alone)

    def of_leaving(self, job: int, gpu: int) -> float:
        """The expected time saved if a job is moved from a shared GPU to one of its own."""
        rest = [other for other in self._gpus.jobs[gpu] if other != job]
        together = self._speeds([*rest, job], gpu, surely=False)
        apart = [*self._speeds(rest, gpu, surely=False), *self._speeds([job], gpu, surely=False)]
        if not _are_known(together, apart):
            return 0.0
        return self._lost_s([*rest, job], together, apart) - float(self._view.jobs.migrate_s.item(job))

    def _lost_s(self, jobs: Sequence[int], together: Sequence[float], apart: Sequence[float]) -> float:
        """What jobs lose by being together; the last is the newcomer."""
        *ends, last = [work_left_s(self._view, job) / speed for job, speed in zip(jobs, together, strict=True)]
        for_s = [*(min(last, end) for end in ends), min(last, max(ends))]
        return sum(t * (1.0 - s / b) for t, s, b in zip(for_s, together, apart, strict=True))

    def _cached_speeds(self, jobs: Sequence[int], gpu: int) -> list[float]:
        """`_speeds`, remembered for jobs that are looked up more than once."""
        key = (self._gpus.type_of(gpu), *jobs)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._speeds(jobs, gpu)
        return known

    def _speeds(self, jobs: Sequence[int], gpu: int, surely: bool = True) -> list[float]:
        """The speed of each of some jobs if they were together on a GPU, at the least or as expected."""
        placements = [self._gpus.placement(job, gpu) for job in jobs]
        others = [[other for other in jobs if other != job] for job in jobs]
        return speeds(self._view, jobs, placements, others, surely)


def _are_known(*speeds: Sequence[float]) -> bool:
    """Whether all speeds are known and above 0."""
    return all(speed > 0 for some in speeds for speed in some)


class Waits:
    """How long jobs would wait for GPUs of their own if jobs got them in the order of the queue."""

    def __init__(self, draft: Draft) -> None:
        self._view = view = draft.view
        free_s: dict[tuple[int, int], float] = {}
        running = {**view.placed, **{job: draft.placement(job) for job in draft.started()}}
        for job, placement in running.items():
            assert placement is not None
            left_s = view.time_left_s(job) or work_left_s(view, job)
            for device in placement.devices():
                free_s[device] = max(free_s.get(device, 0.0), left_s)
        self._free = [(left_s, device) for device, left_s in free_s.items()] or [(0.0, (-1, -1))]
        heapify(self._free)

    @property
    def next_s(self) -> float:
        """Time until the next GPU is free."""
        return self._free[0][0]

    def enqueue(self, job: int) -> list[tuple[int, int]]:
        """Lets a job wait for the GPUs that will be free next, and returns these."""
        work_s = self._view.work_left_s(job)
        taken = []
        for _ in range(self._view.shape(job).gpus):
            free_s, device = self._free[0]
            heapreplace(self._free, (free_s + work_s, device))
            taken.append(device)
        return taken


def drained_s(view: ClusterView) -> float:
    """How long all the work would take at the current pace of the cluster, with its idle GPUs."""
    jobs, running = view.jobs, view.placed_jobs()
    waiting = np.fromiter(view.waiting, dtype="i8", count=len(view.waiting))
    left = 1.0 - jobs.steps_done[waiting] / jobs.steps[waiting]
    work_s = float((left * jobs.duration_s[waiting]).sum() + view.work_left_of(running).sum())
    pace = float((jobs.rate[running] * jobs.duration_s[running] / jobs.steps[running]).sum())
    pace += sum(view.capacity.idle_total)
    return work_s / pace if pace > 0 else math.inf


def work_left_s(view: ClusterView, job: int) -> float:
    """Work that a job has left; one that has run longer than believed is assumed to need as long again."""
    left_s = view.work_left_s(job)
    return left_s if left_s > 0 else view.now_s - float(view.jobs.placed_s.item(job))
