"""Growable numpy columns: the state of jobs and nodes, one array per property."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Table:
    """Columns of one length that grow together; a subclass lists them with type and default."""

    COLUMNS: ClassVar[Mapping[str, tuple[str, float]]] = {}

    def __init__(self) -> None:
        self.length = 0
        self._capacity = 0
        self._grown: list[Callable[[], None]] = []
        for name, (dtype, _) in self.COLUMNS.items():
            setattr(self, name, np.empty(0, dtype=dtype))

    def __len__(self) -> int:
        return self.length

    def append(self, values: Mapping[str, float]) -> int:
        """Adds a row, with defaults where a column is not given, and returns its number."""
        row = self.length
        self._reserve(row + 1)
        for name, value in values.items():
            getattr(self, name)[row] = value
        self.length = row + 1
        return row

    def extend(self, values: Mapping[str, Array], count: int) -> range:
        """Adds ``count`` rows at once and returns their numbers."""
        first = self.length
        self._reserve(first + count)
        for name, column in values.items():
            getattr(self, name)[first : first + count] = column
        self.length = first + count
        return range(first, self.length)

    def _reserve(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        capacity = max(needed, 2 * self._capacity, 16)
        for name, (dtype, default) in self.COLUMNS.items():
            grown = np.full(capacity, default, dtype=dtype)
            grown[: self.length] = getattr(self, name)[: self.length]
            setattr(self, name, grown)
        self._capacity = capacity
        for follow in self._grown:
            follow()

    def when_grown(self, follow: Callable[[], None]) -> None:
        """Calls ``follow`` whenever the columns are new arrays, because the old ones were full."""
        self._grown.append(follow)

    def columns(self) -> dict[str, Array]:
        """Every column, cut to the rows in use, read-only."""
        return {name: read_only(getattr(self, name)[: self.length]) for name in self.COLUMNS}


def read_only(array: Array) -> Array:
    """A view of an array that refuses writes."""
    view = array.view()
    view.flags.writeable = False
    return view
