"""How values of each type are checked, and written as JSON and as one cell of text."""

from __future__ import annotations

import enum
import math
import re
from numbers import Integral, Real
from typing import Any

from gpuwise.core.errors import UnknownNameError
from gpuwise.core.job.property import Property

UNITS = {"s": "a number of seconds", "bytes": "a number of bytes"}
JOINT = "|"
"""Between the entries of one cell of a trace."""


class Kind:
    """Values of one type. A kind has no state of its own; bounds come from the property."""

    noun = "a value"

    def normal(self, value: Any) -> Any:
        """The value in the form in which it is kept, such as a mapping as a tuple of pairs."""
        return value

    def wrong(self, about: Property, value: Any) -> str:
        """What the value must be instead; empty if it is right."""
        raise NotImplementedError

    def plain(self, value: Any) -> Any:
        """The value as JSON can carry it."""
        return value

    def revive(self, plain: Any) -> Any:
        """Undoes `plain`; older spellings are read too."""
        return plain

    def cell(self, value: Any) -> Any:
        """The value as one cell of a table."""
        return value

    def from_cell(self, cell: Any) -> Any:
        """Undoes `cell`."""
        return cell


class Number(Kind):
    """A number; infinity and NaN are written as text, since JSON has no word for them."""

    noun = "a number"

    def wrong(self, about: Property, value: Any) -> str:
        """Numbers within the bounds are right."""
        if type(value) is float and about.low < value < about.high:  # nearly all are; every job is checked
            return ""
        noun = UNITS.get(about.unit, self.noun)
        if isinstance(value, bool) or not isinstance(value, Real):
            return about.expected(noun)
        return "" if about.allows(float(value)) else about.expected(noun, float(value))

    def plain(self, value: Any) -> Any:
        """``inf`` and ``nan`` as text."""
        return value if math.isfinite(value) else str(value)

    def revive(self, plain: Any) -> Any:
        """From text, too."""
        return float(plain) if isinstance(plain, str) else plain


class Whole(Number):
    """A whole number."""

    noun = "a whole number"

    def wrong(self, about: Property, value: Any) -> str:
        """Whole numbers within the bounds are right."""
        if type(value) is int and about.low < value < about.high:
            return ""
        if isinstance(value, bool) or not isinstance(value, Integral):
            return about.expected(self.noun)
        bounded = -(2**63) <= int(value) < 2**63 and about.allows(int(value))
        return "" if bounded else about.expected(self.noun, min(float(2**63), abs(int(value))))


class Text(Kind):
    """A line of text."""

    noun = "text"

    def wrong(self, about: Property, value: Any) -> str:
        """Text of the right form and length."""
        noun = about.noun or self.noun
        if not isinstance(value, str) or (about.pattern and value and not re.fullmatch(about.pattern, value)):
            return noun
        return f"{noun} of at most {about.most} characters" if about.most and len(value) > about.most else ""


class Choice(Kind):
    """One member of an enumeration, written as its value."""

    def __init__(self, members: type[enum.StrEnum]) -> None:
        self.members = members
        self.noun = " or ".join(members)

    def wrong(self, about: Property, value: Any) -> str:
        """A member."""
        return "" if isinstance(value, self.members) else self.noun

    def plain(self, value: Any) -> Any:
        """Its value."""
        return value.value

    def revive(self, plain: Any) -> Any:
        """The member of a value."""
        return self.members(plain)

    def cell(self, value: Any) -> Any:
        """Its value."""
        return value.value

    def from_cell(self, cell: Any) -> Any:
        """The member of a value."""
        return self.members(cell)


class Members(Kind):
    """Some members of an enumeration, at least one, written by their names in lower case."""

    def __init__(self, members: type[enum.Enum]) -> None:
        self.members = members
        self.noun = "at least one of " + ", ".join(each.name.lower() for each in members)

    def wrong(self, about: Property, value: Any) -> str:
        """At least one member."""
        right = isinstance(value, frozenset) and value and all(isinstance(each, self.members) for each in value)
        return "" if right else self.noun

    def plain(self, value: Any) -> Any:
        """Names, sorted."""
        return sorted(each.name.lower() for each in value)

    def revive(self, plain: Any) -> Any:
        """The members of names; older journals have them in capitals."""
        known = self.members.__members__
        for name in plain:
            if str(name).upper() not in known:
                raise UnknownNameError(self.members.__name__.lower(), str(name), [each.lower() for each in known])
        return frozenset(known[str(name).upper()] for name in plain)

    def cell(self, value: Any) -> Any:
        """Names joined; all of them are none."""
        return "" if len(value) == len(self.members) else JOINT.join(self.plain(value))

    def from_cell(self, cell: Any) -> Any:
        """The members of names; none are all."""
        return self.revive(cell.split(JOINT)) if cell else frozenset(self.members)
