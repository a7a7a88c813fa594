"""Quotas of queues: what a queue accepts, how much of the cluster it may use, and what counts as used."""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import QueueRecord
from gpuwise.core.units import WHOLE_GPU_MILLI


class AdmissionError(GpuwiseError):
    """What a queue does not accept."""


class Quotas:
    """The limits of the queues that have any."""

    def __init__(self, queues: Iterable[QueueRecord] = ()) -> None:
        self._queues = {queue.name: queue for queue in queues}

    def set(self, queue: QueueRecord) -> None:
        """A queue gets limits, or others."""
        self._queues[queue.name] = queue

    def remove(self, name: str) -> None:
        """A queue has no limits any more."""
        self._queues.pop(name, None)

    def limit(self, name: str) -> float | None:
        """The GPUs that the jobs of a queue may use at one time; None is no limit."""
        queue = self._queues.get(name)
        return queue.max_gpus if queue is not None else None

    def weight(self, name: str) -> float:
        """The weight of a queue among the others."""
        queue = self._queues.get(name)
        return queue.weight if queue is not None else 1.0

    def allows(self, name: str, milli: int) -> bool:
        """Whether the jobs of a queue may use this many thousandths of GPUs."""
        limit = self.limit(name)
        return limit is None or milli <= to_milli(limit)

    def check(self, request: JobRequest, user: str) -> None:
        """Refuses a job that its queue will never accept."""
        queue = self._queues.get(request.queue)
        if queue is None:
            return
        if queue.users and user not in queue.users:
            raise AdmissionError(f"{user} may not submit to queue {queue.name!r}")
        asked = asked_milli(request)
        if not self.allows(queue.name, asked):
            raise AdmissionError(
                f"the job asks for {to_gpus(asked):g} GPUs; queue {queue.name!r} may use {queue.max_gpus:g} at one time"
            )

    def check_jobs(self, name: str, has: int, more: int) -> None:
        """Refuses more jobs than a queue may have."""
        queue = self._queues.get(name)
        if queue is not None and queue.max_jobs is not None and has + more > queue.max_jobs:
            raise AdmissionError(
                f"queue {name!r} may have {queue.max_jobs} jobs at a time; it has {has}, and {more} more are asked for"
            )


def to_milli(gpus: float) -> int:
    """GPUs in whole thousandths, in which quotas and shares are counted, so that sums of fractions are exact."""
    return round(gpus * WHOLE_GPU_MILLI)


def to_gpus(milli: int) -> float:
    """GPUs, as people write them."""
    return milli / WHOLE_GPU_MILLI


def asked_milli(request: JobRequest) -> int:
    """Thousandths of GPUs that a job asks for."""
    return to_milli(request.gpus * request.gpu_frac)


ORDER = attrgetter("order")


class Stage(enum.Enum):
    """How far a job has got."""

    BLOCKED = enum.auto()
    """It is on hold, or waits for other jobs; it counts for nothing."""
    WAITING = enum.auto()
    """It waits for its queue's quota or fair share."""
    ADMITTED = enum.auto()
    """The policy sees it, or it has GPUs; it counts against the quota."""


@dataclass(slots=True, eq=False)
class LiveJob:
    """A job that has not ended."""

    uid: str
    queue: str
    asked_milli: int
    """Thousandths of GPUs it asks for."""
    milli: int
    """Thousandths of GPUs it has, or asks for while it has none."""
    order: tuple[int, int]
    """By priority, then by submission."""
    array_limit: int = 0
    """Tasks of its array that may run at one time; 0 is no limit."""
    causes: set[str] = field(default_factory=set)
    """Why it is blocked."""
    placed: bool = False
    """Whether it was ever placed."""
    stage: Stage = Stage.BLOCKED


@dataclass(slots=True)
class QueueJobs:
    """A queue's jobs."""

    waiting: list[LiveJob] = field(default_factory=list)
    """Those that wait for quota or fair share, in order."""
    unplaced: set[LiveJob] = field(default_factory=set)
    """Admitted ones that were never placed."""
    used_milli: int = 0
    """Thousandths of GPUs that its admitted jobs have or ask for."""
    jobs: int = 0


class QueueUsage:
    """The queues that have jobs, and what these count against their quotas."""

    def __init__(self, milli: int, quotas: Quotas) -> None:
        self.milli = milli
        """Thousandths of GPUs of the cluster."""
        self.queues: dict[str, QueueJobs] = {}
        self.backlog_milli = 0
        """Thousandths of GPUs that admitted jobs ask for which have never been placed."""
        self.changed: set[LiveJob] = set()
        """Jobs whose stage may have changed."""
        self._quotas = quotas

    def add(self, job: LiveJob, stage: Stage) -> None:
        """A new job."""
        self.queues.setdefault(job.queue, QueueJobs()).jobs += 1
        job.stage = stage
        self._count(job, 1)
        self.changed.add(job)

    def remove(self, job: LiveJob) -> None:
        """A job has ended."""
        self._count(job, -1)
        self.changed.discard(job)
        queue = self.queues[job.queue]
        queue.jobs -= 1
        if not queue.jobs:
            del self.queues[job.queue]

    def move(self, job: LiveJob, stage: Stage) -> None:
        """A job gets to a stage."""
        self._count(job, -1)
        job.stage = stage
        self._count(job, 1)
        self.changed.add(job)

    def reorder(self, job: LiveJob, order: tuple[int, int]) -> None:
        """A job ranks otherwise."""
        self._count(job, -1)
        job.order = order
        self._count(job, 1)
        self.changed.add(job)

    def set_gpus(self, job: LiveJob, milli: int, *, placed: bool) -> None:
        """A job has, or asks for, this many thousandths of GPUs."""
        if (job.milli, job.placed) != (milli, placed):
            self._count(job, -1)
            job.milli, job.placed = milli, placed
            self._count(job, 1)

    def _count(self, job: LiveJob, sign: int) -> None:
        """Counts a job where it is (1), or no longer (-1)."""
        queue = self.queues[job.queue]
        if job.stage is Stage.WAITING:
            if sign > 0:
                insort(queue.waiting, job, key=ORDER)
            else:
                del queue.waiting[bisect_left(queue.waiting, job.order, key=ORDER)]
        elif job.stage is Stage.ADMITTED:
            queue.used_milli += sign * job.milli
            if not job.placed:
                self.backlog_milli += sign * job.milli
                (queue.unplaced.add if sign > 0 else queue.unplaced.discard)(job)
