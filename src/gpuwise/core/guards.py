"""Lists and dicts as a policy is shown them: the same memory, and no way to write to it."""

from __future__ import annotations

import sys
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from typing import Any, NoReturn, TypeVar, overload

import numpy as np

from gpuwise.core.errors import ReadOnlyError
from gpuwise.core.tables import read_only

K = TypeVar("K")
V = TypeVar("V")


def refusal(name: str) -> Any:
    """A method that raises `ReadOnlyError`, whatever it is called with."""

    def refuse(self: object, *args: object, **more: object) -> NoReturn:
        raise ReadOnlyError(f"{name} was called")

    return refuse


class ReadOnlyList(Sequence[V]):
    """A list as others see it."""

    __slots__ = ("_of",)

    def __init__(self, of: Sequence[V]) -> None:
        self._of = of

    @overload
    def __getitem__(self, at: int) -> V: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[V]: ...
    def __getitem__(self, at: int | slice) -> V | Sequence[V]:
        return self._of[at]

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[V]:
        return iter(self._of)

    def __contains__(self, value: object) -> bool:
        return value in self._of

    def __eq__(self, other: object) -> bool:
        return self._of == (other._of if isinstance(other, ReadOnlyList) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._of)

    def copy(self) -> list[V]:
        """A list of one's own."""
        return list(self._of)

    def index(self, value: Any, start: int = 0, stop: int = sys.maxsize) -> int:
        """Where a value is first; that of `Sequence` is a loop in Python."""
        return self._of.index(value, start, stop)


class ReadOnlyNested(ReadOnlyList[Any]):
    """A list of lists or dicts as others see it."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> Any:
        return guarded(self._of[at])

    def __iter__(self) -> Iterator[Any]:
        return map(guarded, self._of)


class ReadOnlyDict(Mapping[K, V]):
    """A dict as others see it."""

    __slots__ = ("_of",)

    def __init__(self, of: Mapping[K, V]) -> None:
        self._of = of

    def __getitem__(self, key: K) -> V:
        return self._of[key]

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[K]:
        return iter(self._of)

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def get(self, key: K, default: Any = None) -> Any:
        """What stands at a key, or something else."""
        return self._of.get(key, default)

    def items(self) -> ItemsView[K, V]:
        """Every key with what stands there."""
        return self._of.items()

    def keys(self) -> KeysView[K]:
        """Every key."""
        return self._of.keys()

    def values(self) -> ValuesView[V]:
        """What stands at each key."""
        return self._of.values()

    def __repr__(self) -> str:
        return repr(self._of)

    def copy(self) -> dict[K, V]:
        """A dict of one's own."""
        return dict(self._of)


class ReadOnlyListDict(ReadOnlyDict[K, Any]):
    """A dict of lists as others see it."""

    __slots__ = ()

    def __getitem__(self, key: K) -> Any:
        return ReadOnlyList(self._of[key])

    def get(self, key: K, default: Any = None) -> Any:
        """The list at a key, or something else."""
        return ReadOnlyList(self._of[key]) if key in self._of else default

    def items(self) -> Any:
        """Every key with its list."""
        return [(key, ReadOnlyList(value)) for key, value in self._of.items()]

    def values(self) -> Any:
        """The lists."""
        return [ReadOnlyList(value) for value in self._of.values()]


class ReadOnlySet(Set[V]):
    """A set as others see it."""

    __slots__ = ("_of",)

    def __init__(self, of: Set[V]) -> None:
        self._of = of

    def __contains__(self, value: object) -> bool:
        return value in self._of

    def __iter__(self) -> Iterator[V]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


for _kind, _names in (
    (ReadOnlyList, ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "__setitem__")),
    (ReadOnlyDict, ("update", "setdefault", "pop", "popitem", "clear", "__setitem__")),
    (ReadOnlySet, ("add", "discard", "remove", "pop", "clear", "update")),
):
    for _name in (*_names, "__delitem__", "__iadd__", "__ior__"):
        setattr(_kind, _name, refusal(_name))


def guarded(value: Any) -> Any:
    """A value that cannot be written to, where it is one that could be."""
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, list):
        return ReadOnlyNested(value) if value and isinstance(value[0], (list, dict)) else ReadOnlyList(value)
    if isinstance(value, dict):
        first = next(iter(value.values()), None)
        return ReadOnlyListDict(value) if isinstance(first, list) else ReadOnlyDict(value)
    return ReadOnlySet(value) if isinstance(value, set) else value
