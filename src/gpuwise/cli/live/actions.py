"""``cancel``, ``suspend``, ``resume`` and ``resize``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.client.errors import LiveError, UnreachableError
from gpuwise.cli.live import options
from gpuwise.cli.live.options import JobArgument, JobsArgument, OutputOption, ServerOption, StateOption
from gpuwise.cli.show.output import Output

if TYPE_CHECKING:
    from gpuwise.cli.show.jobs import Job

_MOST_NAMED = 10


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    options.add(app, "cancel", cancel_command)
    options.add(app, "suspend", suspend_command)
    options.add(app, "resume", resume_command)
    options.add(app, "resize", resize_command)


def cancel_command(
    ids: JobsArgument, server: ServerOption = None, state: StateOption = None, output: OutputOption = None
) -> None:
    """Cancel jobs. What runs is ended, and jobs that wait for them are cancelled too."""
    _act("cancel", ids, server, state, output)


def suspend_command(
    ids: JobsArgument, server: ServerOption = None, state: StateOption = None, output: OutputOption = None
) -> None:
    """Hold jobs back until they are resumed. What runs saves its state, if it can, and leaves its GPUs."""
    _act("suspend", ids, server, state, output)


def resume_command(
    ids: JobsArgument, server: ServerOption = None, state: StateOption = None, output: OutputOption = None
) -> None:
    """Let jobs that were suspended go on."""
    _act("resume", ids, server, state, output)


def resize_command(
    job: JobArgument,
    gpus: Annotated[int, typer.Option(min=1, metavar="N", help="GPUs it goes on with.")],
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """Run an elastic job on with another number of GPUs."""
    _act("resize", [job], server, state, output, {"gpus": gpus})


def _act(
    action: str, ids: list[str], server: str | None, state: Path | None, output: Output | None,
    body: dict[str, int] | None = None,
) -> None:  # fmt: skip
    """Asks for something to be done to each job, to the rest too if one is refused; fails with the first refusal."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.jobs import checked_ids

    client, touched, codes = connect(server, state), list[Any](), list[int]()
    for uid in checked_ids(ids):
        try:
            touched += client.post("jobs", uid, action, body=body)["jobs"]
        except UnreachableError:
            raise
        except LiveError as error:
            print(f"gpuwise: {error}", file=sys.stderr)
            codes.append(error.exit_code)
    _tell(touched, output)
    if codes:
        raise typer.Exit(codes[0])


def _tell(jobs: Sequence[Job], output: Output | None) -> None:
    from gpuwise.cli.live.queue import title_of
    from gpuwise.cli.show.jobs import as_shown, called, status_word
    from gpuwise.cli.show.tables import listing

    if output is not None:
        listing(jobs, output, as_shown, ("id", "name", "status", "where"))
    elif len(jobs) > _MOST_NAMED:
        print(f"{len(jobs)} jobs: {title_of(jobs)}")
    else:
        for job in jobs:
            print(f"job {job['id']} ({called(job)}) is {status_word(job)}")
