"""Lists for people and for programs: what fits on a terminal, or all there is as JSON or CSV."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuwise.cli.show.output import Output, cell, heading, show

Row = Mapping[str, Any]

_GAP = 3
"""Spaces between columns."""


def is_for_people(output: Output | None) -> bool:
    """Whether a table is wanted: asked for, or the output is a terminal."""
    return output in (Output.TABLE, Output.WIDE) or (output is None and sys.stdout.isatty())


def listing(
    rows: Sequence[Row], output: Output | None, as_shown: Callable[[Row], Row], columns: Sequence[str],
    *, drop: Sequence[str] = (), title: str = "", nothing: str = "",
) -> None:  # fmt: skip
    """Prints rows: programs get them as they are, people as shown, without the columns that a terminal has no room for.

    ``drop`` names the columns that can be missed, first one first.
    """
    if not is_for_people(output):
        show([flat(row) for row in rows] if output is not Output.JSON else rows, output)
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


def fitting(rows: Sequence[Row], columns: Sequence[str], drop: Sequence[str], width: int | None = None) -> list[str]:
    """The columns that there is something in and room for; without a terminal there is room for all."""
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


def flat(row: Row) -> dict[str, Any]:
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
    """A text that is at most so long, with a sign where it was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """A text without what would move a terminal's cursor or change its colours."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
