"""What the commands of the live system have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gpuwise.cli.client.errors import EXIT_CODES, LiveError
from gpuwise.cli.live.completion import complete_jobs, complete_queues
from gpuwise.cli.show.output import Output
from gpuwise.cli.show.tables import printable

ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server; $GPUWISE_SERVER, else the one of the state folder."),
]
StateOption = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="The server's state folder; $GPUWISE_STATE, else yours.")
]
OutputOption = Annotated[
    Output | None, typer.Option("-o", "--output", help="table, wide, json or csv; a pipe gets csv.")
]
JobArgument = Annotated[str, typer.Argument(metavar="ID", help="A job.", autocompletion=complete_jobs)]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="Jobs; an array's id is all its tasks.", autocompletion=complete_jobs),
]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.", autocompletion=complete_queues)]


@contextmanager
def exit_codes() -> Iterator[None]:
    """Tells what went wrong with the server in one line and leaves with its exit code."""
    try:
        yield
    except LiveError as error:
        print("gpuwise: " + printable("; ".join(str(error).splitlines())), file=sys.stderr)
        raise typer.Exit(error.exit_code) from None


class Verb(TyperCommand):
    """A command that speaks to the server."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        with exit_codes():
            return super().invoke(ctx)


class VerbGroup(TyperGroup):
    """A command that speaks to the server and has commands of its own."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, or one of its own."""
        with exit_codes():
            return super().invoke(ctx)


def add(app: typer.Typer, name: str, command: Callable[..., None], **settings: Any) -> None:
    """Adds a command that speaks to the server."""
    app.command(name, cls=settings.pop("cls", Verb), epilog=EXIT_CODES, **settings)(command)


def add_group(app: typer.Typer, name: str, command: Callable[..., None], **settings: Any) -> typer.Typer:
    """Adds a command that has commands of its own, and runs by itself if it takes options."""
    group = typer.Typer(
        cls=VerbGroup, epilog=EXIT_CODES, invoke_without_command=True, rich_markup_mode=None, **settings
    )
    group.callback()(command)
    app.add_typer(group, name=name)
    return group
