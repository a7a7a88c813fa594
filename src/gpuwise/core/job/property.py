"""What is said of one property of a job, once: its unit, bounds, help, name on the command line and column."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuwise.core.errors import GpuwiseError

SHOWN_CHARS = 80
HIDDEN = "***"
"""In place of a value that may be a secret."""
OBVIOUS = 1e9
"""A bound of this size or more is named only for a value beyond it."""


class PropertyError(GpuwiseError):
    """A value that a property cannot have: ``name``, ``value`` and what is ``expected`` are attributes."""

    def __init__(self, name: str, value: object, expected: str, of: str = "") -> None:
        self.name = name
        self.value = value
        self.expected = expected
        self.of = of
        """Whose property it is, such as ``job 'a'``; may be empty."""
        super().__init__(f"{of}: {self.text}" if of else self.text)

    @property
    def text(self) -> str:
        """What is wrong, without whose it is."""
        return f"{self.name} {self.complaint}"

    @property
    def complaint(self) -> str:
        """What is wrong, after the property's name."""
        return f"is {short(self.value)}; it must be {self.expected}"

    def __reduce__(self) -> tuple[type, tuple[str, object, str, str]]:
        return type(self), (self.name, self.value, self.expected, self.of)


def short(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """What is said of a property; attached to a field of a dataclass with ``Annotated[type, Property(...)]``."""

    help: str
    """One sentence for the API, the command line and the table of a trace's columns."""
    unit: str = ""
    """``s`` or ``bytes``; decides how people may write it, such as ``2h`` or ``4GiB``."""
    noun: str = ""
    """What a value is, for messages; by default that of its unit or type."""
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether ``low`` itself is too low."""
    or_nan: bool = False
    """Whether NaN is a value: not known."""
    or_inf: bool = False
    """Whether infinity is a value: none, or no limit."""
    most: int = 0
    """How long a text may be, or how many entries it may have; 0 is no limit."""
    pattern: str = ""
    """What a text must look like."""
    option: str = ""
    """Its key in job files and, with hyphens, its option of ``gpuwise submit``; empty is none."""
    metavar: str = ""
    option_help: str = ""
    """What ``gpuwise submit --help`` says, where that is other than ``help``."""
    written: str = ""
    """How people write it, for messages; by default that of its unit or type."""
    column: str = ""
    """The numpy type of its column in the job table; empty where `Shape` has it."""
    coded: bool = False
    """Whether its column has numbers that stand for values."""
    in_trace: bool = True
    """Whether a trace may have it."""
    secret: bool = False
    """Whether its values are not to be shown."""

    def allows(self, number: float) -> bool:
        """Whether a number is within the bounds."""
        if number != number:
            return self.or_nan
        if number == math.inf:
            return self.or_inf
        return (number > self.low if self.above else number >= self.low) and number <= self.high

    def expected(self, noun: str, number: float | None = None) -> str:
        """What a value must be; an obvious upper bound is named only for a value above it."""
        words = self.noun or noun
        named = self.high < OBVIOUS or (number is not None and self.high < number < math.inf)
        if self.low > -OBVIOUS:
            between = (" and at most " if self.above else " to ") if named else ""
            words += f" {'above' if self.above else 'from'} {_plain(self.low)}{between}"
        elif named:
            words += " of at most "
        words += _plain(self.high) if named else ""
        words += f" {self.unit}" if self.noun and self.unit and (named or self.low > -OBVIOUS) else ""
        return words + (", or inf" if self.or_inf else "")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e16 else f"{number:g}"
