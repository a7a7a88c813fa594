"""``submit``: a job file or a command becomes jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.commands import LiveCommand, parameters_of, set_parameters
from gpuwise.cli.options import OutputOption, Server, complete_queues
from gpuwise.cli.submit.fields import FIELDS, Field
from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from gpuwise.cli.submit.draft import Draft

SUFFIX = ".toml"


class SubmitCommand(LiveCommand):
    """Options may follow a job file; what follows a command's first word is the command's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads options and words."""
        given = list(args)
        ctx.allow_interspersed_args = False
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or []
        if len(words) > 1 and words[0].endswith(SUFFIX):
            ctx.allow_interspersed_args = True
            rest = super().parse_args(ctx, given)
        return rest


def submit_command(**given: Any) -> None:
    """Submit a job: a job file, or a command and its arguments.

    As in: gpuwise submit --gpus 2 -- python train.py --lr 0.1. Options count more than the file.
    """
    from gpuwise.cli.submit.submission import Submission

    drafts = drafts_of(given["words"], options_of(given))
    submission = Submission(Server(given["server"], given["state"]).connect, drafts, given["output"])
    if given["dry_run"]:
        submission.show_forecast()
    elif given["follow"]:
        submission.send_and_follow()
    elif given["wait"]:
        submission.send_and_wait()
    else:
        submission.send()


def option_of(key: str, field: Field) -> Parameter:
    """The option for a property of a job."""
    if field.is_flag:
        flag = typer.Option("--" + key.replace("_", "-"), help=field.help)
        return Parameter(key, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[bool | None, flag])
    names = typer.Option(
        metavar=field.metavar, help=field.help, autocompletion=complete_queues if key == "queue" else None
    )
    kind = list[str] | None if field.repeated else str | None
    return Parameter(key, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, names])


def _parameters() -> list[Parameter]:
    """The command line: words, the properties of a job, and what is to be done with it."""
    words = typer.Argument(metavar="FILE.toml | [--] COMMAND...", help="A job file, or a program and its arguments.")
    made = [Parameter("words", Parameter.KEYWORD_ONLY, annotation=Annotated[list[str], words])]
    made += [option_of(key, field) for key, field in FIELDS.items() if key != "command"]
    for name, text in ACTIONS.items():
        flag = typer.Option("--" + name.replace("_", "-"), help=text)
        made.append(Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, flag]))
    output = Parameter("output", Parameter.KEYWORD_ONLY, default=None, annotation=OutputOption)
    return [*made, *parameters_of(Server), output]


ACTIONS = {
    "dry_run": "Show when and where it would run, and why; submit nothing.",
    "wait": "Wait until it has ended; its exit code is the command's.",
    "follow": "Show its log and wait until it has ended.",
}
set_parameters(submit_command, _parameters())


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a job that options give."""
    options = {key: given[key] for key in FIELDS if given.get(key) not in (None, [])}
    if "env" in options:
        options["env"] = environment_of(options["env"])
    return options


def drafts_of(words: list[str], options: dict[str, object]) -> list[Draft]:
    """The jobs that a command line asks for, in the order to submit them."""
    from gpuwise.cli.submit.draft import Draft
    from gpuwise.cli.submit.job_file import read_jobfile

    if not words[0].endswith(SUFFIX):
        return [Draft().with_options({"command": words, **options})]
    if len(words) > 1:
        raise GpuwiseError(f"give a job file or a command, not {words[0]} and {words[1]!r}")
    drafts = read_jobfile(Path(words[0]))
    if len(drafts) > 1 and (single := sorted({"name", "after"} & options.keys())):
        raise GpuwiseError(f"--{single[0]} is for one job, and {words[0]} has {len(drafts)}")
    return [draft.with_options(options) for draft in drafts]


def environment_of(given: list[str]) -> dict[str, str]:
    """The variables that ``--env`` asks for."""
    found: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals and key not in os.environ:
            raise GpuwiseError(f"--env {key}: you have no such variable; write {key}=VALUE")
        found[key] = value if equals else os.environ[key]
    return found
