"""What a policy is shown of the cluster's state: the same memory, read at full speed, that cannot be written to.

Arrays are numpy's own read-only views, so writing to one is numpy's ``ValueError``; all else raises `ReadOnlyError`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.queue import WaitingQueue
from gpuwise.core.decision.guards import ReadOnlyList, ReadOnlyLists, guarded, refusal
from gpuwise.core.errors import ReadOnlyError
from gpuwise.core.tables import Table, read_only

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
"""Answers that a capacity keeps for everybody: whoever asks first fills them in."""
_EMPTY = Capacity(NodeTable())
_KEPT = tuple(name for name, value in vars(_EMPTY).items() if isinstance(value, list) and not name.startswith("_"))
"""The lists of a capacity: always the same objects, so one guard for each is enough."""
_GUARDS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: read_only, dict: MappingProxyType, MappingProxyType: lambda mapping: mapping,
}  # fmt: skip
_REPLACED = tuple(
    (name, _GUARDS[type(value)])
    for name, value in vars(_EMPTY).items()
    if type(value) in _GUARDS and not name.startswith("_")
)
"""Its arrays and dicts: copied when a fork needs them as they were, so they are guarded when they are read."""


def _in_common() -> list[tuple[str, Callable[[Any], Any]]]:
    """What a fork has in common with its origin and could write to, and how that is guarded.

    Arrays that are in common cannot be written to by anybody (`Capacity.fork`).
    """
    guards: dict[type, Callable[[Any], Any]] = {list: ReadOnlyList, dict: MappingProxyType}
    fork = _EMPTY.fork()
    shared = [(name, type(value)) for name, value in vars(_EMPTY).items() if vars(fork)[name] is value]
    return [(name, guards[kind]) for name, kind in shared if kind in guards and not name.startswith("_")]


_IN_COMMON = _in_common()


class ReadOnlyCapacity(_Unwritable, Capacity):
    """What is free, as it is at any moment; a fork of it may be written to."""

    _real: Capacity
    _guards: dict[str, tuple[Any, Any]]
    """What forks have in common with the cluster's capacity, and how it is guarded: most of it stays the same."""

    def __init__(self, real: Capacity, nodes: NodeTable) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_guards", {})
        object.__setattr__(self, "nodes", nodes)
        for name in _CACHES:
            object.__setattr__(self, name, getattr(real, name))
        for name in _KEPT:
            guard = ReadOnlyLists if name == "by_idle" else ReadOnlyList
            object.__setattr__(self, name, guard(getattr(real, name)))

    def __getattr__(self, name: str) -> Any:
        if name == "_real":
            raise AttributeError("a capacity that was not made of another one")
        return guarded(getattr(self._real, name))

    def fork(self) -> Capacity:
        """A copy to try things on; what it still has in common with the cluster's is copied before it is changed."""
        twin = self._real.fork()
        for name, guard in _IN_COMMON:
            setattr(twin, name, self._guarded(name, guard, getattr(twin, name)))
        twin.nodes = self.nodes
        return twin

    def _guarded(self, name: str, guard: Callable[[Any], Any], real: Any) -> Any:
        """What is behind a name, guarded; the same guard as long as it is the same object."""
        known = self._guards.get(name)
        if known is None or known[0] is not real:
            known = self._guards[name] = (real, guard(real))
        return known[1]

    add_node = change_node = remove_node = set_up = set_device_up = refusal("a method that changes nodes")
    take = retake = retake_from = give = repartition = set_claim = refusal("a method that changes what is free")


def _guarding(name: str, guard: Callable[[Any], Any]) -> property:
    return property(lambda capacity: capacity._guarded(name, guard, getattr(capacity._real, name)))


for _name, _guard in _REPLACED:
    setattr(ReadOnlyCapacity, _name, _guarding(_name, _guard))


# -- the waiting jobs --------------------------------------------------------------------------------------------------


class ReadOnlyQueue(_Unwritable, WaitingQueue):
    """The waiting jobs; only the engine lines them up."""

    def __init__(self, real: WaitingQueue) -> None:
        for name in ("_jobs", "_lanes", "_entry"):
            object.__setattr__(self, name, getattr(real, name))

    add = remove = discard = refusal("a method that changes the line")
