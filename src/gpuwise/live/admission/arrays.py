"""Arrays that may run only some of their tasks at one time: which tasks may start, and which wait for others."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Array:
    active: set[str] = field(default_factory=set)
    """Tasks that may start or have started."""
    waiting: dict[str, None] = field(default_factory=dict)
    """Tasks that wait for others to end, in order."""


class ArrayLimits:
    """The tasks of arrays with a limit; a task that is on hold or has ended leaves its place to the next."""

    def __init__(self) -> None:
        self._arrays: dict[str, _Array] = {}

    def add(self, uid: str, limit: int, *, waits: bool | None = None) -> bool:
        """A task asks for a place; whether it has to wait for one. ``waits`` is known of a task from before."""
        array = self._arrays.setdefault(uid.partition("-")[0], _Array())
        if len(array.active) >= limit if waits is None else waits:
            array.waiting[uid] = None
            return True
        array.active.add(uid)
        return False

    def remove(self, uid: str, limit: int) -> list[str]:
        """A task has ended, or is on hold; the tasks that have a place now."""
        name = uid.partition("-")[0]
        array = self._arrays.get(name)
        if array is None:
            return []
        array.active.discard(uid)
        array.waiting.pop(uid, None)
        free = list(array.waiting)[: max(0, limit - len(array.active))]
        for each in free:
            del array.waiting[each]
            array.active.add(each)
        if not array.active and not array.waiting:
            del self._arrays[name]
        return free
