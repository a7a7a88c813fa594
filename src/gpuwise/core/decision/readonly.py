"""What a policy is shown of the cluster's state: the same memory, read at full speed, that cannot be written to.

Arrays are numpy's own read-only views, so writing to one is numpy's ``ValueError``; all else raises `ReadOnlyError`.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.queue import WaitingQueue
from gpuwise.core.errors import ReadOnlyError
from gpuwise.core.guards import ReadOnlyList, ReadOnlyNested, guarded, refusal
from gpuwise.core.tables import Table

T = TypeVar("T", bound=Table)


class _Unwritable:
    """Attributes are as they are."""

    def __setattr__(self, name: str, value: object) -> None:
        raise ReadOnlyError(f"{name} was set")

    def __delattr__(self, name: str) -> None:
        raise ReadOnlyError(f"{name} was deleted")


# -- tables ------------------------------------------------------------------------------------------------------------


@cache
def _twin_kind(kind: Any) -> Any:
    members: dict[str, Any] = {
        name: refusal(name) for name in ("append", "extend", "put", "remove", "_reserve", "when_grown")
    }
    members["length"] = property(lambda twin: twin.__dict__["_table"].length)
    return type(f"ReadOnly{kind.__name__}", (_Unwritable, kind), members)


def read_only_table(table: T) -> T:
    """A twin of a table: columns that share its memory, and follow when it grows, and lists that cannot be changed."""
    twin: T = object.__new__(_twin_kind(cast(Any, type(table))))

    names = tuple(vars(type(table)()))  # of another one: to look into an object's dict makes its attributes slower

    def follow() -> None:
        twin.__dict__.update({name: guarded(getattr(table, name)) for name in names if name != "_where"})
        twin.__dict__.update(_table=table, _where=getattr(table, "_where", None))  # a cache that reading fills

    follow()
    table.when_grown(follow)
    return twin


# -- what is free ------------------------------------------------------------------------------------------------------


_CACHES = ("_types_of", "_allowed", "_labelled")
"""Answers that a capacity keeps for all that ask: the first to ask fills them in."""
_EMPTY = Capacity(NodeTable())
_LISTS = tuple(name for name, value in vars(_EMPTY).items() if isinstance(value, list) and not name.startswith("_"))
"""The lists of a capacity: always the same objects, so one guard for each is enough."""


class ReadOnlyCapacity(_Unwritable, Capacity):
    """What is free, as it is at any moment; a fork of it may be written to."""

    _real: Capacity
    _guards: dict[str, tuple[Any, Any]]
    """What arrays and mappings were when they were last read, and how they are guarded: most stay the same."""

    def __init__(self, real: Capacity, nodes: NodeTable) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_guards", {})
        object.__setattr__(self, "nodes", nodes)
        for name in _CACHES:
            object.__setattr__(self, name, getattr(real, name))
        for name in _LISTS:
            guard = ReadOnlyNested if name == "by_idle" else ReadOnlyList
            object.__setattr__(self, name, guard(getattr(real, name)))

    def __getattr__(self, name: str) -> Any:
        if name == "_real":
            raise AttributeError("a capacity that was not made of another one")
        real = getattr(self._real, name)
        known = self._guards.get(name)
        if known is None or known[0] is not real:
            guard = MappingProxyType(real) if type(real) is dict else guarded(real)
            known = self._guards[name] = (real, guard)
        return known[1]

    def fork(self) -> Capacity:
        """A copy to try things on; what it has in common with the cluster's is copied before it is changed."""
        twin = self._real.fork()
        twin.nodes, twin.layouts, twin.free_slices = self.nodes, self.layouts, self.free_slices
        return twin

    add_node = change_node = remove_node = set_up = set_device_up = refusal("a method that changes nodes")
    take = retake = retake_from = give = repartition = set_claim = refusal("a method that changes what is free")


# -- the waiting jobs --------------------------------------------------------------------------------------------------


class ReadOnlyQueue(_Unwritable, WaitingQueue):
    """The waiting jobs; only the engine changes the queue."""

    def __init__(self, real: WaitingQueue) -> None:
        for name in ("_jobs", "_lanes", "_entry"):
            object.__setattr__(self, name, getattr(real, name))

    add = remove = discard = refusal("a method that changes the queue")
