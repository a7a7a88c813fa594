"""From annotated dataclasses to every form of a job: what is declared of each field, checks, and one codec.

A field is declared once, with ``Annotated[type, Property(...)]``. The job table, the journal, traces, the API's body,
job files and the options of ``gpuwise submit`` are made from `entries`.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import get_annotations
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from gpuwise.core.job import kinds
from gpuwise.core.job.kinds import JOINT, Kind
from gpuwise.core.job.property import HIDDEN, Property, PropertyError

Declaration = TypeVar("Declaration")
LabelValues = tuple[tuple[str, tuple[str, ...]], ...]
"""Values of labels by their keys, as pairs."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One property of a declaration: its name, how its values are written, its default, and what is said of it."""

    name: str
    kind: Kind
    default: Any
    """`MISSING` where it must be given."""
    may_be_none: bool
    about: Property

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is MISSING

    def wrong(self, value: Any) -> str:
        """What a value must be instead; empty if it is right."""
        return "" if value is None and self.may_be_none else self.kind.wrong(self.about, value)

    def plain(self, value: Any) -> Any:
        """A value as JSON can carry it."""
        return None if value is None else self.kind.plain(value)

    def revive(self, plain: Any) -> Any:
        """Undoes `plain`."""
        return None if plain is None else self.kind.revive(plain)

    def is_default(self, value: Any) -> bool:
        """Whether a value is the default; NaN equals NaN."""
        default = self.default
        return bool(value == default) or (value != value and default != default)


_KNOWN: dict[type[Any], Mapping[str, Entry]] = {}


def entries(declaration: type[Any]) -> Mapping[str, Entry]:
    """The properties of an annotated dataclass, by name and in order."""
    known = _KNOWN.get(declaration)
    if known is None:
        own = _own(declaration)
        for base in filter(is_dataclass, declaration.__bases__):
            own = {**entries(base), **own}
        known = _KNOWN[declaration] = {field.name: own[field.name] for field in fields(declaration)}
    return known


def _own(declaration: type[Any]) -> dict[str, Entry]:
    """What a class declares itself: a property that it inherits is the same object as in its base."""
    written = SimpleNamespace(__annotations__=get_annotations(declaration))
    hints = get_type_hints(written, vars(sys.modules[declaration.__module__]), include_extras=True)
    return {field.name: _entry(field, hints[field.name]) for field in fields(declaration) if field.name in hints}


def _entry(field: Any, hint: Any) -> Entry:
    kept, about = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    if not isinstance(about, Property):
        raise TypeError(f"{field.name} has no Property; write {field.name}: Annotated[type, Property(...)]")
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    parts = get_args(kept) if get_origin(kept) is UnionType else (kept,)
    (kind,) = (part for part in parts if part is not NoneType)
    return Entry(field.name, _kind_of(kind), default, NoneType in parts, about)


_KINDS: list[tuple[Any, Kind]] = [
    (int, kinds.Whole()), (float, kinds.Number()), (str, kinds.Text()), (tuple[str, ...], kinds.Words()),
    (tuple[int, ...], kinds.Indexes()), (tuple[tuple[str, float], ...], kinds.Speeds()), (LabelValues, kinds.Labels()),
    (Mapping[str, str], kinds.Variables()), (bool, kinds.Flag()),
]  # fmt: skip


def _kind_of(hint: Any) -> Kind:
    for known, kind in _KINDS:
        if hint == known:
            return kind
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return kinds.Choice(hint)
    part = get_args(hint)[0] if get_args(hint) else None
    if get_origin(hint) is frozenset and isinstance(part, type) and issubclass(part, enum.Enum):
        return kinds.Members(part)
    if get_origin(hint) is tuple and isinstance(part, type) and is_dataclass(part):
        return Records(part)
    raise TypeError(f"{hint} is not a type that a property may have; add a kind in core/job/kinds.py")


def check(declared: Any, of: str = "") -> None:
    """Brings an object's values into the form in which they are kept, and raises `PropertyError` for a wrong one."""
    for name, entry in entries(type(declared)).items():
        value = getattr(declared, name)
        if value is entry.default or (value != value and entry.about.or_nan):
            continue
        normal = entry.kind.normal(value)
        if normal is not value:
            object.__setattr__(declared, name, normal)
        if expected := entry.wrong(normal):
            raise PropertyError(name, HIDDEN if entry.about.secret else value, expected, of)


def plain(declared: Any, declaration: type[Any] | None = None) -> dict[str, Any]:
    """An object as plain values, or the part of it that ``declaration`` has; what is at its default is left out."""
    made = {}
    for name, entry in entries(declaration or type(declared)).items():
        value = getattr(declared, name)
        if value is not entry.default and not entry.is_default(value):  # most are at their default
            made[name] = entry.plain(value)
    return made


def revive(declaration: type[Declaration], given: Mapping[str, Any]) -> Declaration:
    """Undoes `plain`; a name that is no property is a TypeError."""
    known = entries(declaration)
    return declaration(**{name: known[name].revive(value) if name in known else value for name, value in given.items()})


class Records(Kind):
    """Several objects of one annotated dataclass, such as the roles of a job."""

    def __init__(self, declaration: type[Any]) -> None:
        self.declaration = declaration
        self.noun = f"a list of {declaration.__name__.lower()}s"

    def normal(self, value: Any) -> Any:
        """Lists are taken, too."""
        return tuple(value) if isinstance(value, list) else value

    def wrong(self, about: Property, value: Any) -> str:
        """Objects of the declaration, which have checked themselves; not too many."""
        if not isinstance(value, tuple) or not all(isinstance(each, self.declaration) for each in value):
            return self.noun
        return f"{self.noun} of at most {about.most}" if about.most and len(value) > about.most else ""

    def plain(self, value: Any) -> Any:
        """A list of mappings."""
        return [plain(each) for each in value]

    def revive(self, given: Any) -> Any:
        """Objects from mappings."""
        return tuple(each if isinstance(each, self.declaration) else revive(self.declaration, each) for each in given)

    def cell(self, value: Any) -> Any:
        """Such as ``ps:2,cpus=4|worker:8,gpus=1``: the first property, the second, and those that are given."""
        return JOINT.join(map(self._text, value))

    def from_cell(self, cell: Any) -> Any:
        """Undoes `cell`; raises ValueError for what is written otherwise."""
        return tuple(self.from_text(part) for part in cell.split(JOINT)) if cell else ()

    def _text(self, each: Any) -> str:
        known = entries(self.declaration)
        first, second, *rest = known
        given = [f"{key}={getattr(each, key)!r}" for key in rest if getattr(each, key) != known[key].default]
        return ",".join((f"{getattr(each, first)}:{getattr(each, second)}", *given))

    def from_text(self, text: str) -> Any:
        """One object from text such as ``ps:2,cpus=4``."""
        head, *rest = text.split(",")
        first, _, second = head.partition(":")
        known = entries(self.declaration)
        names = list(known)
        given: dict[str, Any] = {names[0]: first} | ({names[1]: int(second)} if second else {})
        for part in rest:
            key, _, value = (word.strip() for word in part.partition("="))
            if key not in names[2:]:
                raise ValueError(f"{key!r} is not one of {', '.join(names[2:])}")
            given[key] = _number(known[key], value)
        return self.declaration(**given)


def _number(entry: Entry, text: str) -> float:
    return int(text) if isinstance(entry.kind, kinds.Whole) else float(text)
