"""``queue``: who runs and who waits, and with --all who has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.live import options
from gpuwise.cli.live.options import OutputOption, QueueOption, ServerOption, StateOption
from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client
    from gpuwise.cli.show.jobs import Job

COLUMNS = ("id", "name", "user", "status", "gpus", "where", "progress_frac", "loss", "start", "finish")
DROP = ("loss", "user", "where", "progress_frac", "gpus", "start")
EVERY_S = 1.0
MOST = 1000
"""What the server lists of those that have not ended."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    options.add(app, "queue", queue_command)


def queue_command(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too, newest first.")] = False,
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    queue: QueueOption = None,
    status: Annotated[str | None, typer.Option(help="Only these, such as running,pending or failed.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many.")] = MOST,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """List the jobs that run and wait, with estimates. -o wide says why they wait."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.jobs import as_shown
    from gpuwise.cli.show.tables import listing

    wanted = {"user": user, "queue": queue, "status": _statuses(status)}

    def fetch() -> list[Job]:
        return _jobs(connect(server, state), wanted, everything, limit)

    if watch:
        from gpuwise.cli.show.watch import watch_table

        watch_table(fetch, as_shown, COLUMNS, DROP, title_of, EVERY_S)
    else:
        jobs = fetch()
        listing(jobs, output, as_shown, COLUMNS, drop=DROP, title=title_of(jobs), nothing="no jobs")


def title_of(jobs: Sequence[Job]) -> str:
    """How many jobs of each status."""
    from gpuwise.cli.show.jobs import ENDED, LIVE

    counts = Counter(job["status"] for job in jobs)
    told = ", ".join(f"{counts[status]} {status}" for status in (*LIVE, *ENDED) if counts[status]) or "no jobs"
    return told if len(jobs) < MOST else f"{told}, and perhaps more"


def _statuses(text: str | None) -> list[str]:
    from gpuwise.cli.show.jobs import ENDED, LIVE
    from gpuwise.core.errors import UnknownNameError

    found = [word for word in (text or "").split(",") if word]
    for word in found:
        if word not in (*LIVE, *ENDED):
            raise UnknownNameError("status", word, (*LIVE, *ENDED))
    if text is not None and not found:
        raise GpuwiseError(f"--status is {text!r}; it must be such as running,pending")
    return found


def _jobs(client: Client, wanted: dict[str, Any], everything: bool, limit: int) -> list[Job]:
    """Jobs that have not ended, with estimates; or any, newest first, where ended ones are asked for."""
    from gpuwise.cli.show.jobs import ENDED, list_jobs, with_estimates

    if everything or set(wanted["status"]) & set(ENDED):
        return with_estimates(client, list_jobs(client, {**wanted, "status": ",".join(wanted["status"])}, limit))
    return [job for job in client.get("queue")["jobs"] if _is_wanted(job, wanted)][:limit]


def _is_wanted(job: Job, wanted: dict[str, Any]) -> bool:
    return (
        wanted["user"] in (None, job["user"])
        and wanted["queue"] in (None, job["queue"])
        and (not wanted["status"] or job["status"] in wanted["status"])
    )
