"""``show`` and ``why``: all about one job, and why it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from gpuwise.cli.live import options
from gpuwise.cli.live.options import JobsArgument, OutputOption, ServerOption, StateOption

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client
    from gpuwise.cli.show.jobs import Job

MOST_ASKED = 20
"""So many jobs are asked about one by one; of more, the queue tells."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    options.add(app, "show", show_command)
    options.add(app, "why", why_command)


def show_command(
    ids: JobsArgument, server: ServerOption = None, state: StateOption = None, output: OutputOption = None
) -> None:
    """Show all that is known of a job, or an array's tasks."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.live import queue
    from gpuwise.cli.show.job_details import portrait
    from gpuwise.cli.show.jobs import as_shown, checked_ids, existing_jobs, with_estimates
    from gpuwise.cli.show.tables import is_for_people, listing

    client = connect(server, state)
    jobs = with_estimates(client, existing_jobs(client, checked_ids(ids)))
    if not is_for_people(output):
        listing([{**job, "launches": _attempts(client, job)} for job in jobs], output, dict, ())
    elif len(jobs) == 1:
        portrait(jobs[0], _attempts(client, jobs[0]))
    else:
        ordered = sorted(jobs, key=lambda job: job["submitted_at"])
        listing(ordered, output, as_shown, queue.COLUMNS, drop=queue.DROP, title=queue.title_of(jobs))


def _attempts(client: Client, job: Job) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("jobs", job["id"], "attempts")["attempts"]
    return found


def why_command(
    ids: JobsArgument, server: ServerOption = None, state: StateOption = None, output: OutputOption = None
) -> None:
    """Say why a job waits, or how it ended."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.jobs import checked_ids, existing_jobs, with_estimates
    from gpuwise.cli.show.output import Output
    from gpuwise.cli.show.tables import listing, printable

    client = connect(server, state)
    jobs = existing_jobs(client, checked_ids(ids))
    if len(jobs) <= MOST_ASKED:
        rows = [client.get("jobs", job["id"], "why") for job in jobs]
    else:
        rows = [_as_in_queue(job) for job in with_estimates(client, jobs)]
    if output in (Output.JSON, Output.CSV):
        listing(rows, output, dict, ())
        return
    for row in rows:
        place = f" (place {row['position']} in line)" if row["position"] else ""
        print(f"job {row['id']} {printable(row['why'])}{place}")


def _as_in_queue(job: Job) -> dict[str, Any]:
    why = job.get("why") or job["why_ended"] or f"does not wait: it is {job['status']}"
    return {"id": job["id"], "status": job["status"], "why": why, "position": job.get("position")}
