"""``reproduce``: published experiments, our figure beside theirs."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuwise.cli.output import Output, show


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    name: Annotated[str, typer.Argument(help="An experiment, or all.")] = "all",
    output: Annotated[Output | None, typer.Option("-o", "--output", help="table, wide, json or csv.")] = None,
) -> None:
    """Run published experiments and print our figure beside the published one."""
    from gpuwise.service.reproduce.registry import reproduce

    rows = reproduce(name)
    show([row.as_dict() for row in rows], output, ("metric", "unit", "paper", "ours", "difference", "met", "note"))
