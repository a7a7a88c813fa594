"""Which jobs wait for which: for a job's success, its end or its failure, and for those of whole arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuwise.core.job.dependency import Dependency, Until


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the end of a job means for those that wait for it."""

    free: list[str] = field(default_factory=list)
    """Jobs that wait for nothing more."""
    never: list[str] = field(default_factory=list)
    """Jobs that now can never start."""


class Dependencies:
    """What each live job still waits for."""

    def __init__(self) -> None:
        self._after: dict[str, set[Dependency]] = {}
        """Of each live job, what it still waits for."""
        self._tasks: Counter[str] = Counter()
        """Of each array, its tasks that have not ended."""
        self._dependents: dict[str, dict[str, set[Until]]] = {}
        """Of each job or array that others wait for, which jobs do, and for what."""

    def add(self, uid: str, after: Iterable[str]) -> bool:
        """A new job; whether it waits for jobs that have not ended."""
        wanted = {each for each in map(Dependency.parse, after) if each.name in self._after or each.name in self._tasks}
        self._after[uid] = wanted
        if array := _array_of(uid):
            self._tasks[array] += 1
        for until, name in wanted:
            self._dependents.setdefault(name, {}).setdefault(uid, set()).add(until)
        return bool(wanted)

    def __contains__(self, uid: object) -> bool:
        """Whether a job is known here and has not ended."""
        return uid in self._after

    def has_tasks(self, array: str) -> bool:
        """Whether an array has tasks that have not ended."""
        return array in self._tasks

    def first(self, uid: str) -> Dependency:
        """One of the jobs and arrays that a job waits for: the oldest."""
        return min(self._after[uid], key=lambda each: (len(each.name), each.name, each.until))

    def ended(self, uid: str, *, succeeded: bool) -> Outcome:
        """A job has ended; what that means for the jobs that wait for it or for its array."""
        self._remove(uid)
        outcome = Outcome()
        self._settle(uid, outcome, succeeded=succeeded, last=True)
        if array := _array_of(uid):
            self._settle(array, outcome, succeeded=succeeded, last=array not in self._tasks)
        outcome.never.sort()
        return outcome

    def _settle(self, name: str, outcome: Outcome, *, succeeded: bool, last: bool) -> None:
        """Decides what is decided by now of those that wait for a job or an array, of which one task has ended."""
        for uid, untils in list(self._dependents.get(name, {}).items()):
            met = {Until.OK: succeeded and last, Until.ANY: last, Until.NOT_OK: not succeeded}
            missed = {Until.OK: not succeeded, Until.NOT_OK: succeeded and last}
            if any(missed.get(until) for until in untils):
                outcome.never.append(uid)
                continue
            for until in [until for until in untils if met[until]]:
                self._met(uid, Dependency(until, name))
                if not self._after[uid]:
                    outcome.free.append(uid)

    def _met(self, uid: str, dependency: Dependency) -> None:
        self._after[uid].discard(dependency)
        self._drop(uid, dependency)

    def _drop(self, uid: str, dependency: Dependency) -> None:
        waiting = self._dependents[dependency.name]
        waiting[uid].discard(dependency.until)
        if not waiting[uid]:
            del waiting[uid]
        if not waiting:
            del self._dependents[dependency.name]

    def _remove(self, uid: str) -> None:
        """Removes a job; the jobs that wait for it are kept."""
        if array := _array_of(uid):
            self._tasks[array] -= 1
            if not self._tasks[array]:
                del self._tasks[array]
        for each in self._after.pop(uid):
            self._drop(uid, each)


def _array_of(uid: str) -> str:
    """The array that a job is a task of; empty if it is none."""
    array, dash, _ = uid.partition("-")
    return array if dash else ""
