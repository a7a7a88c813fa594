"""Who may stand in line: dependencies, quotas of queues, fair shares between them, and what users hold back.

A policy orders the line; admission decides who is in it. With jobs of several queues, about as many GPUs' worth of
jobs as the cluster has stand in line at a time, taken from the queue that has least for its weight, and one job of each
queue whatever the others have in line: so a thousand jobs of one queue do not stand before the first of another, and
jobs that find no place do not keep others from idle GPUs, whatever the policy.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwise.core.commands import Reason, Why
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import JobRecord, QueueRecord

USER, DEPENDENCY, QUOTA, SHARE = "user", "dependency", "quota", "share"
_EPSILON = 1e-9
"""Fractions of GPUs that are added and taken away again do not come out even."""


class AdmissionError(GpuwiseError):
    """What a queue does not take."""


class _Stand(enum.Enum):
    """Where a job stands."""

    HELD = enum.auto()
    """Its user or a dependency holds it back; it counts for nothing."""
    OUTSIDE = enum.auto()
    """It waits for its queue's quota or share."""
    IN_LINE = enum.auto()
    """The policy sees it, or it is on GPUs; it counts against the quota."""


@dataclass(slots=True)
class _Entry:
    """A job that has not ended."""

    uid: str
    queue: str
    asked: float
    """GPUs it asks for."""
    gpus: float
    """GPUs it holds, or asks for while it holds none."""
    order: tuple[int, int]
    """By priority, then as they came."""
    after: set[str]
    """Jobs and arrays it still waits for, by the names its user gave."""
    causes: set[str] = field(default_factory=set)
    """``user``, ``dependency``, both or none."""
    placed: bool = False
    """Whether it was ever given GPUs."""
    stand: _Stand = _Stand.HELD


@dataclass(slots=True)
class _Line:
    """A queue's jobs."""

    outside: list[tuple[tuple[int, int], str]] = field(default_factory=list)
    """Those that wait for quota or share, in order."""
    waiting: set[str] = field(default_factory=set)
    """Those in line that were never placed."""
    used: float = 0.0
    """GPUs that its jobs in line or on GPUs hold or ask for."""
    jobs: int = 0


class Admission:
    """Where each job stands, and for what cause it is held; a job with none is in line."""

    def __init__(self, gpus: float, queues: Iterable[QueueRecord] = ()) -> None:
        self._gpus = max(gpus, 1.0)
        self._queues = {queue.name: queue for queue in queues}
        self._jobs: dict[str, _Entry] = {}
        self._lines: dict[str, _Line] = {}
        """Of queues with jobs."""
        self._tasks: Counter[str] = Counter()
        """Of each array, its tasks that have not ended."""
        self._dependents: dict[str, set[str]] = {}
        """Of each job or array that others wait for, who does."""
        self._backlog = 0.0
        """GPUs that jobs in line ask for which have never been placed."""
        self._count = 0
        self._touched: set[str] = set()

    def __contains__(self, uid: object) -> bool:
        """Whether a job has not ended."""
        return uid in self._jobs

    # -- what a queue takes ---------------------------------------------------------------------------------------

    def check(self, request: JobRequest, user: str) -> None:
        """Refuses a job that its queue will never take."""
        queue = self._queues.get(request.queue)
        if queue is None:
            return
        if queue.users and user not in queue.users:
            raise AdmissionError(f"{user} may not submit to queue {queue.name!r}")
        if self._is_too_large(queue.name, _asked(request)):
            raise AdmissionError(
                f"the job asks for {_asked(request):g} GPUs; "
                f"queue {queue.name!r} may hold {queue.max_gpus:g} at one time"
            )

    def check_room(self, name: str, jobs: int) -> None:
        """Refuses more jobs than a queue may have."""
        queue, line = self._queues.get(name), self._lines.get(name)
        has = line.jobs if line is not None else 0
        if queue is not None and queue.max_jobs is not None and has + jobs > queue.max_jobs:
            raise AdmissionError(
                f"queue {name!r} may have {queue.max_jobs} jobs at a time; it has {has}, and {jobs} more are asked for"
            )

    # -- what happens ---------------------------------------------------------------------------------------------

    def add(self, record: JobRecord) -> None:
        """A new job; `settle` lets it into the line."""
        entry = self._enter(record)
        self._move(entry, _Stand.HELD if entry.causes else _Stand.OUTSIDE)

    def restore(self, record: JobRecord) -> None:
        """A job that was here before the service started again comes back to where it stood."""
        entry, held = self._enter(record), record.held.split(",")
        entry.placed = record.attempts > 0
        if USER in held:
            entry.causes.add(USER)
        if entry.causes:
            self._move(entry, _Stand.HELD)
        else:
            self._move(entry, _Stand.OUTSIDE if record.held else _Stand.IN_LINE)

    def _enter(self, record: JobRecord) -> _Entry:
        uid, request, asked = record.uid, record.request, _asked(record.request)
        after = {name for name in request.after if name in self._jobs or name in self._tasks}
        self._count += 1
        entry = _Entry(uid, request.queue, asked, asked, (-request.priority, self._count), after)
        self._jobs[uid] = entry
        self._lines.setdefault(request.queue, _Line()).jobs += 1
        if array := _array_of(uid):
            self._tasks[array] += 1
        for name in after:
            self._dependents.setdefault(name, set()).add(uid)
        if after:
            entry.causes.add(DEPENDENCY)
        return entry

    def placed(self, uid: str, gpus: float) -> None:
        """A job was given GPUs, or other ones."""
        self._holds(self._jobs[uid], gpus, placed=True)

    def displaced(self, uid: str) -> None:
        """A job holds no GPUs any more, or none yet."""
        entry = self._jobs[uid]
        self._holds(entry, entry.asked, placed=entry.placed)

    def _holds(self, entry: _Entry, gpus: float, *, placed: bool) -> None:
        if (entry.gpus, entry.placed) != (gpus, placed):
            self._tally(entry, -1)
            entry.gpus, entry.placed = gpus, placed
            self._tally(entry, 1)

    def resize(self, uid: str, gpus: float) -> None:
        """A job is to hold another number of GPUs; more than its queue may hold is refused."""
        entry = self._jobs[uid]
        limit, used = self._limit(entry.queue), self._lines[entry.queue].used
        if gpus > entry.gpus and limit is not None and used - entry.gpus + gpus > limit + _EPSILON:
            raise AdmissionError(
                f"queue {entry.queue!r} may hold {limit:g} GPUs at one time and has {used:g}; "
                f"job {uid} would hold {gpus:g} instead of {entry.gpus:g}"
            )
        self.placed(uid, gpus)

    def ended(self, uid: str, *, succeeded: bool) -> list[tuple[str, str]]:
        """A job is gone; those that wait for it and now never can start, each with the reason."""
        entry = self._jobs.pop(uid, None)
        if entry is None:
            return []
        self._leave(entry)
        if not succeeded:
            never = self._waiting_for(uid) | self._waiting_for(_array_of(uid))
            return [(each, f"job {uid}, which it waits for, did not succeed") for each in sorted(never)]
        self._met(uid)
        if (array := _array_of(uid)) and array not in self._tasks:
            self._met(array)
        return []

    def _leave(self, entry: _Entry) -> None:
        """Forgets all that is kept of a job, except who waits for it."""
        self._tally(entry, -1)
        line = self._lines[entry.queue]
        line.jobs -= 1
        if not line.jobs:
            del self._lines[entry.queue]
        if array := _array_of(entry.uid):
            self._tasks[array] -= 1
            if not self._tasks[array]:
                del self._tasks[array]
        for name in entry.after:
            self._dependents[name].discard(entry.uid)
            if not self._dependents[name]:
                del self._dependents[name]

    def _waiting_for(self, name: str) -> set[str]:
        return self._dependents.get(name, set())

    def _met(self, name: str) -> None:
        """A job or a whole array has succeeded: nobody waits for it any more."""
        for each in self._dependents.pop(name, ()):
            entry = self._jobs[each]
            entry.after.discard(name)
            if not entry.after:
                self._drop_cause(entry, DEPENDENCY)

    def hold(self, uid: str) -> None:
        """Its user holds a job back; what it held of its queue's quota is free for others."""
        entry = self._jobs[uid]
        if USER not in entry.causes:
            entry.causes.add(USER)
            self._move(entry, _Stand.HELD)

    def release(self, uid: str) -> None:
        """Its user lets a job go on, as soon as `settle` lets it in again."""
        entry = self._jobs[uid]
        if USER in entry.causes:
            self._drop_cause(entry, USER)

    def _drop_cause(self, entry: _Entry, cause: str) -> None:
        entry.causes.discard(cause)
        self._move(entry, _Stand.HELD if entry.causes else _Stand.OUTSIDE)

    def set_gpus(self, gpus: float) -> bool:
        """The cluster has another number of GPUs; whether that is news, and `settle` may let others in."""
        changed = self._gpus != max(gpus, 1.0)
        self._gpus = max(gpus, 1.0)
        return changed

    def set_queue(self, queue: QueueRecord) -> None:
        """A queue gets limits, or others."""
        self._queues[queue.name] = queue
        self._touch_outside(queue.name)

    def forget_queue(self, name: str) -> None:
        """A queue has no limits any more."""
        self._queues.pop(name, None)
        self._touch_outside(name)

    def _touch_outside(self, name: str) -> None:
        if line := self._lines.get(name):
            self._touched.update(uid for _, uid in line.outside)

    # -- who is let in --------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Lets jobs into the line while there is quota and room in it; done twice it is as if done once."""
        self._apply_quotas()
        self._admit()
        if len(self._lines) > 1 and self._backlog > 2 * self._gpus:
            self._shorten()
            self._admit()

    def _admit(self) -> None:
        while (entry := self._next()) is not None:
            self._move(entry, _Stand.IN_LINE)

    def _next(self) -> _Entry | None:
        """The job to be let in next: of a queue with none in line, then of the one that has least for its weight."""
        full = len(self._lines) > 1 and self._backlog >= self._gpus - _EPSILON
        best: tuple[bool, float, str] | None = None
        head: _Entry | None = None
        for name, line in self._lines.items():
            if not line.outside or (full and line.waiting):
                continue
            rank = (bool(line.waiting), line.used / self._weight(name), name)
            if (best is None or rank < best) and (first := self._first(name, line)) and self._has_quota(first, line):
                best, head = rank, first
        return head

    def _first(self, name: str, line: _Line) -> _Entry | None:
        """The first job outside that its queue's quota would ever let in; larger ones are passed over."""
        outside = (self._jobs[uid] for _, uid in line.outside)
        return next((entry for entry in outside if not self._is_too_large(name, entry.gpus)), None)

    def _has_quota(self, entry: _Entry, line: _Line) -> bool:
        limit = self._limit(entry.queue)
        return limit is None or line.used + entry.gpus <= limit + _EPSILON

    def _is_too_large(self, name: str, gpus: float) -> bool:
        limit = self._limit(name)
        return limit is not None and gpus > limit + _EPSILON

    def _apply_quotas(self) -> None:
        """Takes jobs that were never placed out of line, last one first, while their queue has more than its quota."""
        for name, line in self._lines.items():
            if line.waiting and self._is_too_large(name, line.used):
                for entry in reversed(self._waiting(line)):
                    if self._is_too_large(name, line.used):
                        self._move(entry, _Stand.OUTSIDE)

    def _shorten(self) -> None:
        """Takes all but one of each queue's jobs that were never placed out of a line that is much too long.

        It is when a second queue comes while the first has all its jobs in line.
        """
        for line in self._lines.values():
            for entry in self._waiting(line)[1:] if len(line.waiting) > 1 else ():
                self._move(entry, _Stand.OUTSIDE)

    def _waiting(self, line: _Line) -> list[_Entry]:
        return sorted((self._jobs[uid] for uid in line.waiting), key=lambda entry: entry.order)

    def _weight(self, name: str) -> float:
        queue = self._queues.get(name)
        return queue.weight if queue is not None else 1.0

    def _limit(self, name: str) -> float | None:
        queue = self._queues.get(name)
        return queue.max_gpus if queue is not None else None

    def _move(self, entry: _Entry, stand: _Stand) -> None:
        self._tally(entry, -1)
        entry.stand = stand
        self._tally(entry, 1)
        self._touched.add(entry.uid)

    def _tally(self, entry: _Entry, sign: int) -> None:
        """Counts a job where it stands (1), or no longer (-1)."""
        line, place = self._lines[entry.queue], (entry.order, entry.uid)
        if entry.stand is _Stand.OUTSIDE:
            if sign > 0:
                insort(line.outside, place)
            else:
                del line.outside[bisect_left(line.outside, place)]
        elif entry.stand is _Stand.IN_LINE:
            line.used += sign * entry.gpus
            if not entry.placed:
                self._backlog += sign * entry.gpus
                (line.waiting.add if sign > 0 else line.waiting.discard)(entry.uid)

    def touched(self) -> list[str]:
        """The jobs whose causes may have changed since this was last asked, as they came."""
        touched, self._touched = [uid for uid in self._touched if uid in self._jobs], set()
        return sorted(touched, key=lambda uid: self._jobs[uid].order[1])

    # -- what is known --------------------------------------------------------------------------------------------

    def causes(self, uid: str) -> frozenset[str]:
        """Why a job is held; empty if it is in line."""
        entry = self._jobs[uid]
        if entry.stand is _Stand.OUTSIDE:
            return frozenset((QUOTA if self._lacks_quota(entry) else SHARE,))
        return frozenset(entry.causes)

    def _lacks_quota(self, entry: _Entry) -> bool:
        """Whether quota keeps a job outside: it alone asks for too much, or those before it and it do together."""
        line = self._lines[entry.queue]
        if self._is_too_large(entry.queue, entry.gpus):
            return True
        first = self._first(entry.queue, line)
        return first is not None and not self._has_quota(first, line)

    def reason(self, uid: str) -> Reason | None:
        """Why a job is held, with the numbers; None if it is not."""
        entry, causes = self._jobs[uid], self.causes(uid)
        line = self._lines[entry.queue]
        numbers: dict[str, float | str] = {"queue": entry.queue, "used": line.used, "gpus": entry.gpus}
        if USER in causes:
            return Reason(Why.HELD)
        if DEPENDENCY in causes:
            return Reason(Why.AFTER, {"ahead": min(entry.after, key=lambda name: (len(name), name))})
        if QUOTA in causes:
            return Reason(Why.QUOTA, {**numbers, "limit": self._limit(entry.queue) or 0.0})
        return Reason(Why.SHARE, numbers) if causes else None

    def usage(self) -> Mapping[str, tuple[float, int]]:
        """Of each queue with jobs: GPUs held or in line, and jobs."""
        return {name: (line.used, line.jobs) for name, line in self._lines.items()}


def _asked(request: JobRequest) -> float:
    return request.gpus * request.gpu_frac


def _array_of(uid: str) -> str:
    """The array that a job is a task of; empty if it is none."""
    array, dash, _ = uid.partition("-")
    return array if dash else ""
