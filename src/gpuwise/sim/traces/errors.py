"""Errors of traces, with what their owner needs to fix them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwise.core.errors import GpuwiseError

SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that is not a job: where it is, the value at fault and why it is wrong."""

    file: str
    line: int
    column: str
    value: str
    why: str
    unit: str = (
        "line"  # what ``line`` counts: lines of text, or the "job"s of a JSON list, or the "row"s of a Parquet file
    )

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.unit == "line" else f"{self.file}: {self.unit} {self.line}"
        column = f"column {self.column}: " if self.column else ""
        return f"{place}: {column}{self.value!r} {self.why}"


class TraceError(GpuwiseError):
    """A trace that cannot be read, written or made; ``rows`` are the bad rows when rows are the cause."""

    def __init__(self, message: str, rows: Sequence[BadRow] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)

    @classmethod
    def of_rows(cls, rows: Sequence[BadRow], hint: str = "") -> TraceError:
        """The error for these bad rows: the first in full, the others counted by reason, then what to do."""
        message = str(rows[0])
        if len(rows) > 1:
            message += f"\n{len(rows)} bad rows in all: {count_reasons(rows)}"
        return cls(f"{message}\n{hint}" if hint else message, rows)


def count_reasons(rows: Sequence[BadRow]) -> str:
    """The number of bad rows by reason, most frequent first, as one line of text."""
    reasons = Counter(f"{row.column} {row.why}".strip() for row in rows)
    return "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(5))


def shorten(value: str) -> str:
    """A value cut to 60 characters, so that no error prints megabytes."""
    return value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}…"


def shown(value: str) -> str:
    """A value in quotes, cut to 60 characters."""
    return repr(shorten(value))
