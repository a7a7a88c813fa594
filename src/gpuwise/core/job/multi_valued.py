"""Kinds of properties that have several values: words, indexes, speeds, labels, variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwise.core.job.kinds import JOINT, Kind
from gpuwise.core.job.property import Property


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
