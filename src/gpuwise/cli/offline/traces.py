"""``convert`` and ``formats``: traces from one format to another, and which there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuwise.cli.show.output import Output, show, writable


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("convert")(convert_command)
    app.command("formats")(formats_command)


def convert_command(
    trace: Annotated[str, typer.Argument(help="A trace in any known format, or a generator.")],
    to: Annotated[Path, typer.Argument(help="The file to write: .csv or .parquet.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="The trace's format, where its content does not tell.")
    ] = None,
    throughputs: Annotated[Path | None, typer.Option(help="Measured throughputs, for traces that need them.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows and say how many.")] = False,
) -> None:
    """Write a trace as gpuwise's own CSV or Parquet, and say what is in it."""
    from gpuwise.sim.traces.files import read_trace, write_trace

    loaded = read_trace(trace, format=format_, skip_bad=skip_bad, throughputs=throughputs)
    write_trace(loaded, writable(to))
    print(loaded.summary())


def formats_command(
    output: Annotated[Output | None, typer.Option("-o", "--output", help="table, wide, json or csv.")] = None,
) -> None:
    """List the trace formats and generators."""
    from gpuwise.sim.traces.files import FORMATS
    from gpuwise.sim.traces.generate import GENERATORS

    rows = [{"kind": "format", "name": each.name, "what": each.description} for each in FORMATS.values()]
    rows += [
        {"kind": "generator", "name": f"gen:{name}", "what": generator.description}
        for name, generator in GENERATORS.items()
    ]
    show(rows, output)
