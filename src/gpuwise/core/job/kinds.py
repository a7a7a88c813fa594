"""How values of each type are checked, and written as JSON and as one cell of text."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
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


class Flag(Kind):
    """Yes or no."""

    noun = "true or false"

    def wrong(self, about: Property, value: Any) -> str:
        """True or False."""
        return "" if isinstance(value, bool) else self.noun

    def cell(self, value: Any) -> Any:
        """``true`` or nothing."""
        return "true" if value else ""

    def from_cell(self, cell: Any) -> Any:
        """Undoes `cell`; raises ValueError for what is neither."""
        if (text := str(cell).strip().lower()) not in ("", "true", "false"):
            raise ValueError
        return text == "true"


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

    cell = plain

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


# -- several values ----------------------------------------------------------------------------------------------------


class Words(Kind):
    """Several words, such as GPU types."""

    noun = "a list of words"

    def normal(self, value: Any) -> Any:
        """Lists are taken, too."""
        return tuple(value) if isinstance(value, list) else value

    def wrong(self, about: Property, value: Any) -> str:
        """Words, and not too many."""
        if not isinstance(value, tuple) or not all(isinstance(word, str) for word in value):
            return about.noun or self.noun
        return f"at most {about.most} {about.noun or 'words'}" if about.most and len(value) > about.most else ""

    def plain(self, value: Any) -> Any:
        """A list."""
        return list(value)

    def revive(self, plain: Any) -> Any:
        """A tuple."""
        return tuple(plain)

    def cell(self, value: Any) -> Any:
        """Words joined."""
        return JOINT.join(value)

    def from_cell(self, cell: Any) -> Any:
        """Words, each once and in order."""
        return tuple(sorted(set(cell.split(JOINT)))) if cell else ()


class Indexes(Words):
    """Several whole numbers."""

    noun = "a list of whole numbers"

    def wrong(self, about: Property, value: Any) -> str:
        """Whole numbers within the bounds, each once, and not too many."""
        if not isinstance(value, tuple) or any(type(each) is not int for each in value):
            return about.noun or self.noun
        if about.most and len(value) > about.most:
            return f"at most {about.most} {about.noun or 'numbers'}"
        if len(set(value)) < len(value):
            return f"{about.noun or 'numbers'}, each once"
        return "" if all(map(about.allows, value)) else about.expected(self.noun)


class Speeds(Kind):
    """A number for each of several names, kept as pairs and written as a mapping."""

    noun = "names with numbers, each name once"

    def normal(self, value: Any) -> Any:
        """Mappings are taken, too."""
        return tuple(value.items()) if isinstance(value, Mapping) else value

    def wrong(self, about: Property, value: Any) -> str:
        """Pairs of a name and a number within the bounds."""
        if not isinstance(value, tuple) or not all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return about.noun or self.noun
        numbers = all(isinstance(name, str) and about.allows(number) for name, number in value)
        if not numbers or len(dict(value)) < len(value):
            return about.noun or self.noun
        return f"at most {about.most} names with numbers" if about.most and len(value) > about.most else ""

    def plain(self, value: Any) -> Any:
        """A mapping."""
        return dict(value)

    def revive(self, plain: Any) -> Any:
        """Pairs; older journals have a list of them."""
        return tuple(plain.items()) if isinstance(plain, Mapping) else tuple((name, number) for name, number in plain)

    def cell(self, value: Any) -> Any:
        """Such as ``V100=1.5|A100/1g=0.3``."""
        return JOINT.join(f"{name}={number!r}" for name, number in value)

    def from_cell(self, cell: Any) -> Any:
        """Undoes `cell`; raises ValueError for what is no number."""
        parts = (part.partition("=") for part in cell.split(JOINT)) if cell else ()
        return tuple((name, float(number)) for name, _, number in parts)


class Labels(Kind):
    """Some values for each of several keys, such as ``zone`` is ``a`` or ``b``; kept as pairs, written as a mapping."""

    noun = "labels such as zone=a,b, each key once"

    def normal(self, value: Any) -> Any:
        """Mappings and lists are taken, too."""
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, (Mapping, tuple, list)) or not all(len(pair) == 2 for pair in pairs):
            return value
        return tuple((key, (some,) if isinstance(some, str) else tuple(some)) for key, some in pairs)

    def wrong(self, about: Property, value: Any) -> str:
        """Each key once, with at least one value."""
        if not isinstance(value, tuple) or len({key for key, _ in value}) < len(value):
            return self.noun
        texts = [text for key, some in value for text in (key, *some)]
        right = all(isinstance(text, str) and 0 < len(text) <= 128 for text in texts) and all(s for _, s in value)
        if not right or any(set(text) & set("=,|") or not text.isprintable() for text in texts):
            return self.noun
        return f"at most {about.most} labels" if about.most and len(value) > about.most else ""

    def plain(self, value: Any) -> Any:
        """A mapping to lists."""
        return {key: list(some) for key, some in value}

    def revive(self, plain: Any) -> Any:
        """Pairs."""
        return self.normal(plain)

    def cell(self, value: Any) -> Any:
        """Such as ``zone=a,b|rack=7``."""
        return JOINT.join(f"{key}={','.join(some)}" for key, some in value)

    def from_cell(self, cell: Any) -> Any:
        """Undoes `cell`."""
        parts = (part.partition("=") for part in cell.split(JOINT)) if cell else ()
        return tuple((key, tuple(some.split(","))) for key, _, some in parts)


class Variables(Kind):
    """Text for each of several names, as in an environment."""

    noun = "names with values, such as LR=0.1"

    def wrong(self, about: Property, value: Any) -> str:
        """Names and values of text."""
        right = isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)
        return "" if right else self.noun

    def plain(self, value: Any) -> Any:
        """A mapping."""
        return dict(value)
