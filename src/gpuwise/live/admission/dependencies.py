"""Which jobs wait for which: for single jobs, and for arrays, of which every task must succeed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Dependencies:
    """What each live job still waits for, by the names that its user gave."""

    def __init__(self) -> None:
        self._after: dict[str, set[str]] = {}
        """Of each live job, the jobs and arrays it still waits for."""
        self._tasks: Counter[str] = Counter()
        """Of each array, its tasks that have not ended."""
        self._dependents: dict[str, set[str]] = {}
        """Of each job or array that others wait for, which jobs do."""

    def add(self, uid: str, after: Iterable[str]) -> bool:
        """A new job; whether it waits for jobs that have not ended."""
        names = {name for name in after if name in self._after or name in self._tasks}
        self._after[uid] = names
        if array := _array_of(uid):
            self._tasks[array] += 1
        for name in names:
            self._dependents.setdefault(name, set()).add(uid)
        return bool(names)

    def first(self, uid: str) -> str:
        """One of the jobs and arrays that a job waits for: the oldest."""
        return min(self._after[uid], key=lambda name: (len(name), name))

    def succeeded(self, uid: str) -> list[str]:
        """A job has ended with success; the jobs that wait for nothing more."""
        self._remove(uid)
        free = self._met(uid)
        if (array := _array_of(uid)) and array not in self._tasks:
            free += self._met(array)
        return free

    def failed(self, uid: str) -> list[str]:
        """A job has ended without success; the jobs that now can never start."""
        self._remove(uid)
        return sorted(self._dependents.get(uid, set()) | self._dependents.get(_array_of(uid), set()))

    def _remove(self, uid: str) -> None:
        """Removes a job; the jobs that wait for it are kept."""
        if array := _array_of(uid):
            self._tasks[array] -= 1
            if not self._tasks[array]:
                del self._tasks[array]
        for name in self._after.pop(uid):
            self._dependents[name].discard(uid)
            if not self._dependents[name]:
                del self._dependents[name]

    def _met(self, name: str) -> list[str]:
        free = []
        for uid in self._dependents.pop(name, ()):
            self._after[uid].discard(name)
            if not self._after[uid]:
                free.append(uid)
        return free


def _array_of(uid: str) -> str:
    """The array that a job is a task of; empty if it is none."""
    array, dash, _ = uid.partition("-")
    return array if dash else ""
