"""Showing rows: as a table on a terminal, as JSON or CSV elsewhere."""

from __future__ import annotations

import csv
import enum
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwise.core.errors import GpuwiseError


class Output(enum.StrEnum):
    """How rows are shown."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


def show(
    rows: Sequence[Mapping[str, Any]], output: Output | None, columns: Sequence[str] | None = None, title: str = ""
) -> None:
    """Prints rows; ``columns`` are those of the plain table, all others only in wide, JSON and CSV.

    With no choice made, a terminal gets a table and a pipe gets CSV.
    """
    chosen = output or (Output.TABLE if sys.stdout.isatty() else Output.CSV)
    if chosen is Output.JSON:
        print(json.dumps([dict(row) for row in rows], indent=2, default=str))
    elif chosen is Output.CSV:
        _csv(rows)
    else:
        names = columns if columns and chosen is Output.TABLE else list(rows[0]) if rows else []
        _table(rows, names, title, wide=chosen is Output.WIDE)


def writable(path: Path) -> Path:
    """A path whose folder is there, made if it was not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuwiseError(f"{path}: {error.strerror}") from None
    return path


def _csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _flat(value) for name, value in row.items()} for row in rows)


def _flat(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str], title: str, wide: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        numeric = all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        table.add_column(heading(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(name, row.get(name)) for name in names))
    width = None if sys.stdout.isatty() and not wide else 40 + 16 * len(names)
    Console(width=width, highlight=False, soft_wrap=wide).print(table, markup=False)


def heading(name: str) -> str:
    """A field's name as a column's heading: the unit moves out where the cells carry it."""
    for suffix, unit in (("_frac", " %"), ("_usd", " $"), ("_bytes", ""), ("_s", "")):
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " ") + unit
    return name.replace("_", " ")


def cell(name: str, value: Any) -> str:
    """A value as a person reads it."""
    from gpuwise.core.units import format_bytes, format_duration

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if name.endswith("_frac"):
        return f"{100 * value:.1f}"
    if name.startswith("decide_") or name == "wall_s":
        return (
            f"{value:.2f} s" if value >= 0.1 else f"{1e3 * value:.2f} ms" if value >= 1e-3 else f"{1e6 * value:.0f} µs"
        )
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return format_duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
