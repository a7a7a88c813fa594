"""``cancel``, ``suspend``, ``resume``, ``hold``, ``release``, ``requeue``, ``update`` and ``resize``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.client.errors import LiveError, UnreachableError
from gpuwise.cli.options import JobArgument, JobsArgument, OutputOption, Server
from gpuwise.cli.show.tables import Output, printable

if TYPE_CHECKING:
    from gpuwise.cli.show.jobs import Job

_MOST_NAMED = 10


def cancel_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Cancel jobs, and wait until their processes are gone. Jobs that wait for them are cancelled too."""
    _act("cancel", ids, server, output)


def suspend_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Put jobs on hold until they are resumed. Running ones checkpoint, if they can, and release their GPUs."""
    _act("suspend", ids, server, output)


def resume_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Resume jobs that were suspended."""
    _act("resume", ids, server, output)


def hold_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Put jobs that wait on hold until they are released."""
    _act("hold", ids, server, output)


def release_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Release jobs that are on hold."""
    _act("release", ids, server, output)


def requeue_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Stop jobs and queue them again. They restart from their checkpoints, if any."""
    _act("requeue", ids, server, output)


def update_command(
    ids: JobsArgument,
    priority: Annotated[str | None, typer.Option(metavar="N", help="Higher ranks first.")] = None,
    time_limit: Annotated[str | None, typer.Option(metavar="TIME", help="GPU time in all: 12h, or none.")] = None,
    deadline: Annotated[str | None, typer.Option(metavar="WHEN", help="2030-01-31T18:00, +6h, or none.")] = None,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Change the priority, time limit or deadline of jobs."""
    from gpuwise.cli.submit.fields import FIELDS

    given = {"priority": priority, "time_limit": time_limit, "deadline": deadline}
    body: dict[str, Any] = {}
    for key, text in given.items():
        if text is not None:
            none = text == "none" and key != "priority"
            body[FIELDS[key].target] = None if none else FIELDS[key].read("--" + key.replace("_", "-"), text)
    if not body:
        raise LiveError("nothing to change; give --priority, --time-limit or --deadline")
    _act("update", ids, server, output, body)


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
    action: str, ids: list[str], server: Server, output: Output | None, body: dict[str, Any] | None = None
) -> None:
    """Asks for something to be done to each job, to the rest too if one is refused; fails with the first refusal."""
    from gpuwise.cli.show.jobs import checked_ids, resolved

    words, touched, codes = checked_ids(ids), list[Any](), list[int]()
    client = server.connect()
    for uid in resolved(client, words):
        try:
            if action == "update":
                touched += client.patch("jobs", uid, body=body)["jobs"]
            else:
                touched += client.post("jobs", uid, action, body=body)["jobs"]
        except UnreachableError:
            raise
        except LiveError as error:
            print(f"gpuwise: {printable(str(error))}", file=sys.stderr)
            codes.append(error.exit_code)
    if action == "cancel":
        from gpuwise.cli.live.wait import detached_on_interrupt, until_gone

        with detached_on_interrupt([job["id"] for job in touched]):
            until_gone(server.connect, touched)
    _print(touched, output, body if action == "update" else None)
    if codes:
        raise typer.Exit(codes[0])


def _print(jobs: Sequence[Job], output: Output | None, changed: Mapping[str, Any] | None = None) -> None:
    """Prints what jobs are now, with the new values of the properties that were ``changed``."""
    from gpuwise.cli.show.jobs import as_shown, counts, short_name, status_word
    from gpuwise.cli.show.tables import listing

    if output is not None:
        listing(jobs, output, as_shown, ("id", "name", "status", "where"))
    elif len(jobs) > _MOST_NAMED:
        print(f"{len(jobs)} jobs: {counts(jobs)}")
    else:
        for job in jobs:
            values = ", ".join(_property(name, job[name]) for name in changed or ())
            print(f"job {job['id']} ({short_name(job)}) is {status_word(job)}" + (f": {values}" if values else ""))


def _property(name: str, value: float | None) -> str:
    """A property that may be changed, as people read it."""
    from gpuwise.cli.show.times import moment
    from gpuwise.core.units import format_duration

    if name == "priority":
        return f"priority {value}"
    if name == "time_limit_s":
        return f"time limit {'none' if value is None else format_duration(value)}"
    return f"deadline {moment(value) or 'none'}"
