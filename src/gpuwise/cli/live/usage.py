"""``usage``: GPU hours allocated and used, by user, queue and day."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from gpuwise.cli.options import OutputOption, Server
from gpuwise.cli.show.tables import listing
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import parse_duration_s


def usage_command(
    since: Annotated[str, typer.Option(metavar="WHEN", help="2030-01-31, or a time ago such as 7d.")] = "7d",
    by: Annotated[str, typer.Option(metavar="WORDS", help="Some of user,queue,day.")] = "user",
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Show the GPU hours that users and queues had, and used."""
    query: dict[str, float | str] = {"since": _moment(since), "by": by}
    rows = server.connect().get("usage", query=query)["usage"]
    words = [word for word in by.split(",") if word]
    columns = (*words, "jobs", "GPU hours", "used hours", "utilization_frac")
    listing(rows, output, lambda row: _shown(words, row), columns, nothing="nothing was used in that time")


def _moment(text: str) -> float:
    """The Unix time of a day, a moment, or a time ago."""
    try:
        return max(0.0, time.time() - parse_duration_s(text))
    except (GpuwiseError, ValueError):
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        expected = "a day such as 2030-01-31, or a time ago such as 7d"
        raise GpuwiseError(f"--since is {text!r}; it must be {expected}") from None


def _shown(words: list[str], row: Any) -> dict[str, Any]:
    return {
        **{word: row[word] for word in words},
        "jobs": row["jobs"],
        "GPU hours": round(row["allocated_gpu_s"] / 3600, 3),
        "used hours": None if row["used_gpu_s"] is None else round(row["used_gpu_s"] / 3600, 3),
        "utilization_frac": row["utilization_frac"],
    }
