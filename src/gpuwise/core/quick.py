"""Functions written out attribute by attribute, for objects that a simulation makes hundreds of thousands of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def copier(names: Iterable[str]) -> Callable[[Any, Any], None]:
    """A function that gives its second argument the attributes of its first: half the time of a loop or of a dict."""
    made: dict[str, Any] = {}
    exec("\n".join(["def copy(one, other):", *(f"    other.{name} = one.{name}" for name in names)]), made)
    copy: Callable[[Any, Any], None] = made["copy"]
    return copy


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
