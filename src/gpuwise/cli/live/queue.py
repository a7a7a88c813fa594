"""``queue``: the jobs that run and wait, and with --all those that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.options import OutputOption, QueueOption, Server
from gpuwise.cli.show.jobs import ENDED, LIVE, Job, as_shown, counts, list_jobs, with_estimates
from gpuwise.cli.show.tables import listing
from gpuwise.cli.show.watch import watch_table
from gpuwise.core.errors import GpuwiseError, UnknownNameError

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client

COLUMNS = ("id", "name", "user", "status", "gpus", "where", "progress_frac", "loss", "start", "finish")
DROP = ("loss", "where", "progress_frac", "start", "gpus", "user")
EVERY_S = 1.0
MOST = 1000
"""Maximum number of jobs that the server lists of those that have not ended."""


def queue_command(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too, newest first.")] = False,
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    queue: QueueOption = None,
    status: Annotated[str | None, typer.Option(help="Only these, such as running,pending or failed.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of jobs.")] = MOST,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update it every second, until Ctrl-C.")] = False,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List the jobs that run and wait, with estimates. -o wide says why they wait."""
    if mine and user is not None:
        raise GpuwiseError(f"give --mine or --user {user}, not both")
    wanted = {"user": user, "queue": queue, "status": _statuses(status)}

    def fetch() -> list[Job]:
        client = server.connect()
        whose = {"user": client.get("status")["user"]} if mine else {}
        return _jobs(client, {**wanted, **whose}, everything, limit)

    if watch:
        watch_table(fetch, as_shown, COLUMNS, DROP, title_of, EVERY_S)
    else:
        jobs = fetch()
        listing(jobs, output, as_shown, COLUMNS, drop=DROP, title=title_of(jobs), nothing="no jobs")


def title_of(jobs: Sequence[Job]) -> str:
    """How many jobs of each status."""
    return counts(jobs) + (", and perhaps more" if len(jobs) >= MOST else "")


def _statuses(text: str | None) -> list[str]:
    found = [word for word in (text or "").split(",") if word]
    for word in found:
        if word not in (*LIVE, *ENDED):
            raise UnknownNameError("status", word, (*LIVE, *ENDED))
    if text is not None and not found:
        raise GpuwiseError(f"--status is {text!r}; it must be such as running,pending")
    return found


def _jobs(client: Client, wanted: dict[str, Any], everything: bool, limit: int) -> list[Job]:
    """Jobs that have not ended, with estimates; or any, newest first, where ended ones are asked for."""
    if everything or set(wanted["status"]) & set(ENDED):
        return with_estimates(client, list_jobs(client, {**wanted, "status": ",".join(wanted["status"])}, limit))
    query = {"user": wanted["user"]} if wanted["user"] else {}
    return [job for job in client.get("queue", query=query)["jobs"] if _is_wanted(job, wanted)][:limit]


def _is_wanted(job: Job, wanted: dict[str, Any]) -> bool:
    return (
        wanted["user"] in (None, job["user"])
        and wanted["queue"] in (None, job["queue"])
        and (not wanted["status"] or job["status"] in wanted["status"])
    )
