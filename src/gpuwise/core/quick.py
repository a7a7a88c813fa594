"""Frozen dataclasses that a simulation makes hundreds of thousands of."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick(kind: type[T]) -> type[T]:
    """Lets a frozen dataclass with slots write its slots directly: half the time that it takes otherwise."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    setters: dict[str, Any] = {f"set_{name}": getattr(kind, name).__set__ for name in names}
    lines = [f"    set_{name}(self, {name})" for name in names]
    exec("\n".join([f"def __init__(self, {', '.join(names)}):", *lines]), setters)
    init = setters["__init__"]
    init.__qualname__, init.__defaults__ = f"{kind.__qualname__}.__init__", kind.__init__.__defaults__
    setattr(kind, "__init__", init)  # noqa: B010
    return kind
