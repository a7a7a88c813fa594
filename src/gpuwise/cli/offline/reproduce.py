"""``reproduce``: published experiments, our figure beside theirs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.options import OutputOption
from gpuwise.cli.show.tables import Output, show

if TYPE_CHECKING:
    from gpuwise.experiments.rows import Row

COLUMNS = ("metric", "unit", "paper", "ours", "difference", "met", "note")


def reproduce_command(
    name: Annotated[str, typer.Argument(help="validation, priority, colocation, sharing, or all of them.")] = "all",
    output: OutputOption = None,
) -> None:
    """Run published experiments; our figures beside theirs. Each takes a minute or a few."""
    from gpuwise.experiments.registry import chosen, reproduce

    as_table = output is Output.TABLE or (output is None and sys.stdout.isatty())
    rows: list[Row] = []
    for experiment in chosen(name):
        if sys.stderr.isatty():
            print(f"running {experiment}; this takes a minute or a few", file=sys.stderr)
        found = reproduce(experiment)
        rows += found
        if as_table:
            _table(experiment, found)
    if not as_table:
        show([row.as_dict() for row in rows], output)


def _table(experiment: str, rows: Sequence[Row]) -> None:
    """The rows, the number that are as near as they should be above them, and each note once below them."""
    compared = [row for row in rows if row.met is not None]
    near = sum(bool(row.met) for row in compared)
    notes = {note: number for number, note in enumerate(dict.fromkeys(row.note for row in rows if row.note), 1)}
    shown: list[dict[str, Any]] = [
        row.as_dict() | {"met": {True: "yes", False: "no", None: "-"}[row.met], "note": str(notes.get(row.note, ""))}
        for row in rows
    ]
    show(shown, Output.TABLE, COLUMNS, title=f"{experiment}: {near} of {len(compared)} published figures are met")
    for note, number in notes.items():
        print(f"{number}: {note}")
