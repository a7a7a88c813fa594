"""``cancel``, ``suspend``, ``resume`` and ``resize``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.client.errors import LiveError, UnreachableError
from gpuwise.cli.options import JobArgument, JobsArgument, OutputOption, Server
from gpuwise.cli.show.tables import Output

if TYPE_CHECKING:
    from gpuwise.cli.show.jobs import Job

_MOST_NAMED = 10


def cancel_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Cancel jobs. Running ones are stopped, and jobs that wait for them are cancelled too."""
    _act("cancel", ids, server, output)


def suspend_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Put jobs on hold until they are resumed. Running ones checkpoint, if they can, and release their GPUs."""
    _act("suspend", ids, server, output)


def resume_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Resume jobs that were suspended."""
    _act("resume", ids, server, output)


def resize_command(
    job: JobArgument,
    gpus: Annotated[int, typer.Option(min=1, metavar="N", help="GPUs it continues with.")],
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Change the number of GPUs of an elastic job."""
    _act("resize", [job], server, output, {"gpus": gpus})


def _act(
    action: str, ids: list[str], server: Server, output: Output | None, body: dict[str, int] | None = None
) -> None:
    """Asks for something to be done to each job, to the rest too if one is refused; fails with the first refusal."""
    from gpuwise.cli.show.jobs import checked_ids

    client, touched, codes = server.connect(), list[Any](), list[int]()
    for uid in checked_ids(ids):
        try:
            touched += client.post("jobs", uid, action, body=body)["jobs"]
        except UnreachableError:
            raise
        except LiveError as error:
            print(f"gpuwise: {error}", file=sys.stderr)
            codes.append(error.exit_code)
    _print(touched, output)
    if codes:
        raise typer.Exit(codes[0])


def _print(jobs: Sequence[Job], output: Output | None) -> None:
    from gpuwise.cli.show.jobs import as_shown, counts, short_name, status_word
    from gpuwise.cli.show.tables import listing

    if output is not None:
        listing(jobs, output, as_shown, ("id", "name", "status", "where"))
    elif len(jobs) > _MOST_NAMED:
        print(f"{len(jobs)} jobs: {counts(jobs)}")
    else:
        for job in jobs:
            print(f"job {job['id']} ({short_name(job)}) is {status_word(job)}")
