"""The rows of a file as columns of text: numbers are parsed and checked a whole column at a time.

A reader asks for its columns, flags what is wrong and leaves out what its format says is no job; ``finish`` then gives
the canonical frame. Nothing here loops over good rows, and line numbers stay those of the file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuwise.sim.traces.errors import BadRow, TraceError, shorten, shown
from gpuwise.sim.traces.schema import Rule, Values, complete
from gpuwise.sim.traces.source import Source

MAX_LINE_CHARS = 1_000_000
MAX_COLUMNS = 1000
MAX_NAME_CHARS = 200
EXAMPLE = datetime(2017, 10, 9, 7, 2, 52)
Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader made of a file: jobs, bad rows in file order, and counts of rows left out by rule."""

    jobs: pl.DataFrame
    bad: tuple[BadRow, ...]
    left_out: dict[str, int]


class Rows:
    """Columns of text with their line numbers, what was found wrong and what was left out."""

    def __init__(self, file: str, cells: pl.DataFrame, lines: Values, unit: str = "line") -> None:
        self.file = file
        self.cells = cells.with_columns(pl.all().str.strip_chars().fill_null(""))
        self.lines = np.asarray(lines, dtype=np.int64)
        self.unit = unit
        self.left_out: dict[str, int] = {}
        self._bad: list[BadRow] = []
        self._keep = np.ones(len(self.lines), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, column: str) -> bool:
        return column in self.cells.columns

    @property
    def bad(self) -> tuple[BadRow, ...]:
        """The bad rows found so far, in the order of the file."""
        return tuple(sorted(self._bad, key=lambda row: row.line))

    @property
    def kept(self) -> Mask:
        """Which rows are still jobs: neither flagged nor left out."""
        return self._keep.copy()

    def require(self, columns: Iterable[str], hint: str = "") -> None:
        """Raise an error when one of the columns is not in the file."""
        missing = [name for name in columns if name not in self]
        if missing:
            found = ", ".join(self.cells.columns)
            found = found if len(found) <= 300 else found[:300] + "…"
            raise TraceError(f"{self.file}: missing column {', '.join(missing)} (found: {found}){hint}")

    def text(self, column: str) -> pl.Series:
        """A column as text; empty strings when the file does not have it."""
        if column in self:
            return self.cells[column]
        return pl.repeat("", len(self), dtype=pl.String, eager=True)

    def number(self, column: str, rule: Rule, default: float | None = None) -> Numbers:
        """A column as numbers that keep the rule; rows that break it are flagged, empty cells take the default."""
        text = self.text(column)
        values = text.cast(pl.Float64, strict=False)
        numbers = values.fill_null(0.0).to_numpy().astype(np.float64)
        good = values.is_not_null().to_numpy() & rule.allows(numbers)
        if default is not None:
            empty = (text == "").to_numpy()
            numbers[empty] = default
            good |= empty
        self.flag(~good, column, f"is not {rule.expected}")
        return numbers

    def time(self, column: str, layout: str = "%Y-%m-%d %H:%M:%S", epoch: bool = False) -> Numbers:
        """A column of dates as seconds since 1970, flagging what is no date; ``epoch`` also takes such seconds."""
        text = self.text(column)
        seconds = text.str.to_datetime(layout, strict=False, time_unit="us").dt.epoch("us").cast(pl.Float64) / 1e6
        if epoch:
            seconds = seconds.fill_null(text.cast(pl.Int64, strict=False).cast(pl.Float64))
        self.flag(seconds.is_null().to_numpy(), column, f"is not a time such as {EXAMPLE.strftime(layout)}")
        return seconds.fill_null(0.0).to_numpy().astype(np.float64)

    def unique(self, column: str) -> pl.Series:
        """A column of ids; empty and repeated ones are flagged."""
        ids = self.text(column)
        self.flag((ids == "").to_numpy(), column, "is not an id")
        repeated = np.zeros(len(self), dtype=np.bool_)
        kept = np.flatnonzero(self._keep)
        repeated[kept] = ~ids.gather(kept).is_first_distinct().to_numpy()
        self.flag(repeated, column, "repeats the id of an earlier row")
        return ids

    def flag(self, mask: Mask, column: str, why: str, values: pl.Series | None = None) -> None:
        """Mark rows as bad; only the first fault of a row is kept."""
        at_fault = np.flatnonzero(mask & self._keep)
        if not len(at_fault):
            return
        values = self.text(column) if values is None else values
        for index in at_fault.tolist():
            value = shorten(str(values[index]))
            self._bad.append(BadRow(self.file, int(self.lines[index]), column, value, why, self.unit))
        self._keep[at_fault] = False

    def leave_out(self, mask: Mask, why: str) -> None:
        """Leave out rows that are no jobs by the format's rule, and count them under ``why``."""
        gone = mask & self._keep
        if gone.any():
            self.left_out[why] = self.left_out.get(why, 0) + int(gone.sum())
            self._keep[gone] = False

    def refuse_bad(self) -> None:
        """Raise an error when a row is bad."""
        if self._bad:
            raise TraceError.of_rows(self.bad)

    def finish(self, id_column: str | None, **columns: Values) -> Reading:
        """The canonical frame of the rows that were neither flagged nor left out; ids may be row numbers, from 0.

        Ids are checked last, so that a row at fault does not take an id from a good one.
        """
        columns["id"] = pl.Series(range(len(self)), dtype=pl.Int64) if id_column is None else self.unique(id_column)
        keep = np.flatnonzero(self._keep)
        kept = {name: pl.Series(name, values).gather(keep) for name, values in columns.items()}
        return Reading(complete(kept), self.bad, self.left_out)


def read_rows(source: Source, separator: str = ",", names: Iterable[str] | None = None) -> Rows:
    """The rows of delimited text; the header is the first line, unless ``names`` gives the columns."""
    text = source.text()
    if separator == "," and '"' in text:  # sacct and Gavel never quote, and a job's name may hold a quote
        return _read_quoted(source, text, separator, names)
    lines = pl.Series(text.split("\n"), dtype=pl.String)
    frame = pl.DataFrame({"text": lines, "line": np.arange(1, len(lines) + 1)})
    frame = frame.filter(pl.col("text").str.strip_chars(" \t") != "")
    header = list(names) if names is not None else _header(source, frame["text"][0].split(separator))
    if names is None:
        frame = frame.slice(1)
    fields = frame["text"].str.split_exact(separator, len(header) - 1).struct.rename_fields(header).struct.unnest()
    counts = frame["text"].str.count_matches(separator, literal=True).to_numpy() + 1
    rows = Rows(source.name, fields, frame["line"])
    rows.flag(frame["text"].str.len_bytes().to_numpy() > MAX_LINE_CHARS, "", "is too long for a row", frame["text"])
    rows.flag(counts != len(header), "", f"has not {len(header)} fields, as the first line has", frame["text"])
    return rows


def _read_quoted(source: Source, text: str, separator: str, names: Iterable[str] | None) -> Rows:
    """The same for text with quotes, where a field may hold separators and line ends."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    records: list[list[str]] = []
    lines: list[int] = []
    try:
        for record in reader:
            if any(field.strip() for field in record):
                records.append(record)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise TraceError(f"{source.name}:{reader.line_num}: {error}") from None
    header = list(names) if names is not None else _header(source, records.pop(0))
    lines = lines[len(lines) - len(records) :]
    fields = {name: [r[i] if i < len(r) else "" for r in records] for i, name in enumerate(header)}
    rows = Rows(source.name, pl.DataFrame(fields, schema=dict.fromkeys(header, pl.String)), np.array(lines))
    ragged = np.array([len(record) != len(header) for record in records], dtype=np.bool_)
    joined = pl.Series([separator.join(r) for r in records], dtype=pl.String)
    rows.flag(ragged, "", f"has not {len(header)} fields, as the first line has", joined)
    return rows


def _header(source: Source, fields: list[str]) -> list[str]:
    header = [field.strip() for field in fields]
    if len(header) > MAX_COLUMNS or max(map(len, header)) > MAX_NAME_CHARS:
        raise TraceError(f"{source.name}:1: {shown(header[0])} does not start a header line: it is too long")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise TraceError(f"{source.name}:1: column {shown(twice[0])} appears twice")
    return header
