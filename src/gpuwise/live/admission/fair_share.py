"""Fair shares between queues: from which queue the next job is admitted.

With jobs of several queues, about as many GPUs' worth of jobs as the cluster has are admitted at a time, taken from the
queue that has least for its weight, and one job of each queue whatever the others have: so a thousand jobs of one queue
do not rank before the first of another, and jobs that find no place do not keep others from idle GPUs, whatever the
policy.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from operator import attrgetter

from gpuwise.live.admission.quotas import EPSILON, Quotas

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
class Job:
    """A job that has not ended."""

    uid: str
    queue: str
    asked: float
    """GPUs it asks for."""
    gpus: float
    """GPUs it has, or asks for while it has none."""
    order: tuple[int, int]
    """By priority, then by submission."""
    causes: set[str] = field(default_factory=set)
    """Why it is blocked."""
    placed: bool = False
    """Whether it was ever placed."""
    stage: Stage = Stage.BLOCKED


@dataclass(slots=True)
class Queue:
    """A queue's jobs."""

    waiting: list[Job] = field(default_factory=list)
    """Those that wait for quota or fair share, in order."""
    unplaced: set[Job] = field(default_factory=set)
    """Admitted ones that were never placed."""
    used: float = 0.0
    """GPUs that its admitted jobs have or ask for."""
    jobs: int = 0


class FairShare:
    """The queues that have jobs, and which of these are admitted."""

    def __init__(self, gpus: float, quotas: Quotas) -> None:
        self.gpus = gpus
        """Of the cluster."""
        self.queues: dict[str, Queue] = {}
        self.backlog = 0.0
        """GPUs that admitted jobs ask for which have never been placed."""
        self.changed: set[Job] = set()
        """Jobs whose stage may have changed."""
        self._quotas = quotas

    def add(self, job: Job, stage: Stage) -> None:
        """A new job."""
        self.queues.setdefault(job.queue, Queue()).jobs += 1
        job.stage = stage
        self._count(job, 1)
        self.changed.add(job)

    def remove(self, job: Job) -> None:
        """A job has ended."""
        self._count(job, -1)
        self.changed.discard(job)
        queue = self.queues[job.queue]
        queue.jobs -= 1
        if not queue.jobs:
            del self.queues[job.queue]

    def move(self, job: Job, stage: Stage) -> None:
        """A job gets to a stage."""
        self._count(job, -1)
        job.stage = stage
        self._count(job, 1)
        self.changed.add(job)

    def set_gpus(self, job: Job, gpus: float, *, placed: bool) -> None:
        """A job has, or asks for, this number of GPUs."""
        if (job.gpus, job.placed) != (gpus, placed):
            self._count(job, -1)
            job.gpus, job.placed = gpus, placed
            self._count(job, 1)

    def _count(self, job: Job, sign: int) -> None:
        """Counts a job where it is (1), or no longer (-1)."""
        queue = self.queues[job.queue]
        if job.stage is Stage.WAITING:
            if sign > 0:
                insort(queue.waiting, job, key=ORDER)
            else:
                del queue.waiting[bisect_left(queue.waiting, job.order, key=ORDER)]
        elif job.stage is Stage.ADMITTED:
            queue.used += sign * job.gpus
            if not job.placed:
                self.backlog += sign * job.gpus
                (queue.unplaced.add if sign > 0 else queue.unplaced.discard)(job)

    def admit(self) -> None:
        """Admits jobs while there is quota and the backlog is short; done twice it is as if done once."""
        self._apply_quotas()
        self._admit_waiting()
        if len(self.queues) > 1 and self.backlog > 2 * self.gpus:
            self._shorten()
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        while (job := self._next()) is not None:
            self.move(job, Stage.ADMITTED)

    def _next(self) -> Job | None:
        """The job to be admitted next: of a queue without a backlog, then of the one that has least for its weight."""
        full = len(self.queues) > 1 and self.backlog >= self.gpus - EPSILON
        best: tuple[bool, float, str] | None = None
        found: Job | None = None
        for name, queue in self.queues.items():
            if not queue.waiting or (full and queue.unplaced):
                continue
            rank = (bool(queue.unplaced), queue.used / self._quotas.weight(name), name)
            if (best is None or rank < best) and (first := self._first(queue)) and self._has_quota(first, queue):
                best, found = rank, first
        return found

    def _first(self, queue: Queue) -> Job | None:
        """The first waiting job that its queue's quota would ever admit; larger ones are passed over."""
        return next((job for job in queue.waiting if self._quotas.allows(job.queue, job.gpus)), None)

    def _has_quota(self, job: Job, queue: Queue) -> bool:
        return self._quotas.allows(job.queue, queue.used + job.gpus)

    def _apply_quotas(self) -> None:
        """Lets admitted jobs that were never placed wait again, last one first, while their queue is over its quota."""
        for name, queue in self.queues.items():
            if queue.unplaced and not self._quotas.allows(name, queue.used):
                for job in sorted(queue.unplaced, key=ORDER, reverse=True):
                    if not self._quotas.allows(name, queue.used):
                        self.move(job, Stage.WAITING)

    def _shorten(self) -> None:
        """Lets all but one of each queue's jobs that were never placed wait again.

        The backlog is much too long when a second queue comes while the first has all its jobs admitted.
        """
        for queue in self.queues.values():
            for job in sorted(queue.unplaced, key=ORDER)[1:]:
                self.move(job, Stage.WAITING)

    def lacks_quota(self, job: Job) -> bool:
        """Whether quota keeps a job waiting: it alone asks for too much, or those before it and it do together."""
        if not self._quotas.allows(job.queue, job.gpus):
            return True
        first = self._first(queue := self.queues[job.queue])
        return first is not None and not self._has_quota(first, queue)
