"""Rows for people, as tables that fit a terminal, and for programs, as JSON or CSV with all fields."""

from __future__ import annotations

import csv
import enum
import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuwise.core.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]

_GAP = 3
"""Spaces between columns."""


class Output(enum.StrEnum):
    """How rows are shown."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


def is_for_people(output: Output | None) -> bool:
    """Whether a table is wanted: asked for, or the output is a terminal."""
    return output in (Output.TABLE, Output.WIDE) or (output is None and sys.stdout.isatty())


def show(rows: Sequence[Row], output: Output | None, columns: Sequence[str] | None = None, title: str = "") -> None:
    """Prints rows; ``columns`` are those of the plain table, all others only in wide, JSON and CSV.

    With no choice made, a terminal gets a table and a pipe gets CSV.
    """
    if output is Output.JSON:
        print(json.dumps([dict(row) for row in rows], indent=2, default=str))
    elif not is_for_people(output):
        _csv(rows)
    else:
        wide = output is Output.WIDE
        names = columns if columns and not wide else list(rows[0]) if rows else []
        _print_table(table(rows, names, title, wrap=True), len(names), wide)


def listing(
    rows: Sequence[Row], output: Output | None, as_shown: Callable[[Row], Row], columns: Sequence[str],
    *, drop: Sequence[str] = (), title: str = "", nothing: str = "",
) -> None:  # fmt: skip
    """Prints rows: programs get them as they are, people as shown, without the columns that a terminal has no room for.

    ``drop`` names the columns that can be missed, first one first.
    """
    if not is_for_people(output):
        show([_flat(row) for row in rows] if output is not Output.JSON else rows, output)
    elif not rows:
        print(nothing, file=sys.stderr)
    else:
        shown = [clean(as_shown(row)) for row in rows]
        wide = output is Output.WIDE
        show(shown, output or Output.TABLE, None if wide else fitting(shown, columns, drop), title)


def print_facts(facts: Mapping[str, str]) -> None:
    """Prints what is known in two columns; what is empty is left out."""
    known = {name: text for name, text in facts.items() if text}
    width = max(map(len, known))
    for name, text in known.items():
        print(f"{name:<{width}}  {printable(text)}")


def table(rows: Sequence[Row], columns: Sequence[str], title: str = "", *, wrap: bool = False) -> Table:
    """Rows as a table to draw; long cells are wrapped or cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        numeric = all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        overflow, justify = "fold" if wrap else "ellipsis", "right" if numeric else "left"
        drawn.add_column(heading(name), justify=justify, overflow=overflow, no_wrap=not wrap)  # type: ignore[arg-type]
    for row in rows:
        drawn.add_row(*(Text(cell(name, row.get(name))) for name in columns))
    return drawn


def _print_table(drawn: Table, columns: int, wide: bool) -> None:
    from rich.console import Console

    width, height = shutil.get_terminal_size()  # both, since a terminal called dumb has 80 columns for rich
    if wide or not sys.stdout.isatty():
        width = 40 + 16 * columns
    Console(width=width, height=height, highlight=False, soft_wrap=wide).print(drawn, markup=False)


def fitting(rows: Sequence[Row], columns: Sequence[str], drop: Sequence[str], width: int | None = None) -> list[str]:
    """The columns that are not empty and that there is room for; without a terminal there is room for all."""
    kept = [name for name in columns if name not in drop or any(row.get(name) not in (None, "") for row in rows)]
    if width is None:
        if not sys.stdout.isatty():
            return kept
        width = shutil.get_terminal_size().columns
    widths = {name: max(len(heading(name)), *(len(cell(name, row.get(name))) for row in rows)) for name in kept}
    for name in drop:
        if sum(widths[each] + _GAP for each in kept) <= width:
            break
        if name in kept:
            kept.remove(name)
    return kept


def heading(name: str) -> str:
    """A field's name as a column's heading: the unit moves out where the cells carry it."""
    for suffix, unit in (("_frac", " %"), ("_usd", " $"), ("_bytes", ""), ("_s", "")):
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " ") + unit
    return name.replace("_", " ")


def cell(name: str, value: Any) -> str:
    """A value as a person reads it."""
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


def _csv(rows: Sequence[Row]) -> None:
    if rows:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(clean(row) if sys.stdout.isatty() else row for row in map(_joined, rows))


def _joined(row: Row) -> Row:
    return {name: " ".join(map(str, each)) if isinstance(each, (list, tuple)) else each for name, each in row.items()}


def _flat(row: Row) -> dict[str, Any]:
    """A row for CSV: what is nested becomes JSON, lists of words stay words."""
    return {name: json.dumps(value) if _is_nested(value) else value for name, value in row.items()}


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value)
    )


def clean(row: Row) -> Row:
    """A row whose texts can be shown on a terminal."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}


def shortened(text: str, width: int) -> str:
    """A text of up to ``width`` characters, with a sign where it was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """A text without what would move a terminal's cursor or change its colours."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
