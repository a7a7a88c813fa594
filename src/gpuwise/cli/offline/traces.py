"""Traces: the options to read one, and ``convert`` from one format to another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.core.errors import GpuwiseError

TraceArgument = Annotated[
    str, typer.Argument(help="A trace file, or a generator such as gen:gavel?jobs=500&rate=4&seed=1.")
]


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How a trace is read."""

    format_: Annotated[
        str | None, typer.Option("--format", help="The trace's format, where its content does not show it.")
    ] = None
    throughputs: Annotated[Path | None, typer.Option(help="Measured throughputs, for traces that need them.")] = None
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows and say how many.")] = False

    def settings(self) -> dict[str, Any]:
        """As keywords of `read_trace`."""
        return {"format": self.format_, "throughputs": self.throughputs, "skip_bad": self.skip_bad}


def convert_command(
    trace: TraceArgument,
    to: Annotated[Path, typer.Argument(help="The file to write: .csv or .parquet.")],
    reading: ReadingOptions,
) -> None:
    """Write a trace as gpuwise's own CSV or Parquet. Prints a summary of it."""
    from gpuwise.service.offline.simulate import convert

    print(convert(trace, writable(to), **reading.settings()).summary())


def writable(path: Path) -> Path:
    """A path whose folder is there, made if it was not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuwiseError(f"{path}: {error.strerror}") from None
    return path
