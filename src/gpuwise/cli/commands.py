"""How commands are added to the command line: options grouped in dataclasses, exit codes of what the server refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from gpuwise.cli.client.errors import EXIT_CODES, LiveError
from gpuwise.cli.show.tables import printable

Command = Callable[..., None]


@contextmanager
def exit_codes() -> Iterator[None]:
    """Prints what went wrong with the server in one line and exits with its code."""
    try:
        yield
    except LiveError as error:
        print("gpuwise: " + printable("; ".join(str(error).splitlines())), file=sys.stderr)
        raise typer.Exit(error.exit_code) from None


class LiveCommand(TyperCommand):
    """A command that speaks to the server."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        with exit_codes():
            return super().invoke(ctx)


class LiveGroup(TyperGroup):
    """A command that speaks to the server and has commands of its own."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, or one of its own."""
        with exit_codes():
            return super().invoke(ctx)


def add_live(app: typer.Typer, name: str, command: Command, cls: type[TyperCommand] = LiveCommand) -> None:
    """Adds a command that speaks to the server."""
    app.command(name, cls=cls, epilog=EXIT_CODES)(with_options(command))


def add_live_group(app: typer.Typer, name: str, command: Command, below: dict[str, Command]) -> None:
    """Adds a command that has commands of its own; without one of them it runs itself, or shows help if it cannot."""
    group = typer.Typer(
        cls=LiveGroup, epilog=EXIT_CODES, invoke_without_command=True, rich_markup_mode=None,
        no_args_is_help=not signature(command).parameters,
    )  # fmt: skip
    group.callback()(with_options(command))
    for each, function in below.items():
        add_live(group, each, function)
    app.add_typer(group, name=name)


def with_options(command: Command) -> Command:
    """A command as typer takes it: each field of a parameter that is a dataclass is an option of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for each in signature(command).parameters.values():
        own = each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[each.name])
        parameters += parameters_of(groups[each.name]) if each.name in groups else [own]

    def run(**given: Any) -> None:
        made = {
            name: kind(**{each.name: given.pop(each.name) for each in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **made)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    set_parameters(run, parameters)
    return run


@cache
def parameters_of(group: Any) -> list[Parameter]:
    """The fields of a dataclass as parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            each.name, Parameter.KEYWORD_ONLY, annotation=hints[each.name],
            default=Parameter.empty if each.default is MISSING else each.default,
        )
        for each in fields(group)
    ]  # fmt: skip


def set_parameters(command: Command, parameters: list[Parameter]) -> None:
    """Lets typer see these parameters of a command that takes any keywords."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
