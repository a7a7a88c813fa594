"""``wait``: until jobs have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from gpuwise.cli.client.errors import FAILED, INTERRUPTED
from gpuwise.cli.options import JobsArgument, Server
from gpuwise.cli.show.jobs import (
    LIVE,
    Job,
    checked_ids,
    counts,
    existing_jobs,
    jobs_with_ids,
    resolved,
    short_name,
    status_word,
)
from gpuwise.cli.show.tables import printable
from gpuwise.cli.show.times import span

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client, Reconnect

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 2.0
_MOST_NAMED = 10


def wait_command(ids: JobsArgument, *, server: Server) -> None:
    """Wait until jobs have ended. Fails if one of them has; a single job's exit code is passed on."""
    words, client = checked_ids(ids), server.connect()
    wanted = resolved(client, words)
    existing_jobs(client, wanted)
    finish(server.connect, wanted)


def finish(reconnect: Reconnect, ids: Sequence[str], *, announce: bool = True) -> None:
    """Waits until jobs have ended, prints how, and exits with their code."""
    with detached_on_interrupt(ids):
        if announce and sys.stderr.isatty():
            print(
                f"waiting for {_named(ids)}; Ctrl-C ends the waiting, not the job{'s' * (len(ids) > 1)}",
                file=sys.stderr,
            )
        jobs = until_ended(reconnect, ids)
    print(summary(jobs), file=sys.stderr)
    if code := exit_code(jobs):
        raise typer.Exit(code)


def until_ended(reconnect: Reconnect, ids: Sequence[str]) -> list[Job]:
    """The jobs with some ids when all have ended."""
    from gpuwise.cli.client.http import ask_until_back

    pause_s = FIRST_PAUSE_S
    while ask_until_back(reconnect, lambda client: jobs_with_ids(client, ids, LIVE, limit=1)):
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LONGEST_PAUSE_S)
    jobs = ask_until_back(reconnect, lambda client: jobs_with_ids(client, ids))
    until_gone(reconnect, jobs)
    return jobs


def until_gone(reconnect: Reconnect, jobs: Sequence[Job]) -> None:
    """Waits until the processes of cancelled jobs are gone, after their grace; other ends are reported after that."""
    from gpuwise.cli.client.http import ask_until_back

    for job in jobs:
        launched = job["status"] == "cancelled" and job.get("attempts")
        while launched and ask_until_back(reconnect, lambda client: _is_alive(client, job["id"])):  # noqa: B023
            time.sleep(FIRST_PAUSE_S)


def _is_alive(client: Client, uid: str) -> bool:
    return bool(client.get("jobs", uid, "attempts").get("alive"))  # a server of the version before does not say


@contextmanager
def detached_on_interrupt(ids: Sequence[str]) -> Iterator[None]:
    """Says on Ctrl-C that it ends the waiting, not the jobs."""
    try:
        yield
    except KeyboardInterrupt:
        verb, them = ("continue", "them") if len(ids) > 1 else ("continues", "it")
        note = f"{_named(ids)} {verb}; look with gpuwise queue, stop {them} with gpuwise cancel"
        print(f"\ngpuwise: {note}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _named(ids: Sequence[str]) -> str:
    more = ", …" if len(ids) > _MOST_NAMED else ""
    return f"job{'s' * (len(ids) > 1)} {', '.join(ids[:_MOST_NAMED])}{more}"


def exit_code(jobs: Sequence[Job]) -> int:
    """0 if all succeeded; a single job's own code; else 1."""
    if all(job["status"] == "succeeded" for job in jobs):
        return 0
    return (jobs[0]["exit_code"] or FAILED) if len(jobs) == 1 else FAILED


def summary(jobs: Sequence[Job]) -> str:
    """How jobs have ended, in a line."""
    if len(jobs) == 1:
        (job,) = jobs
        began = job["started_at"]
        took = f" after {span(job['ended_at'] - began)}" if began and job["ended_at"] else ""
        why = f": {printable(job['why_ended'])}" if job["why_ended"] else ""
        return f"job {job['id']} ({short_name(job)}) {status_word(job)}{took}{why}"
    bad = sorted((job["id"] for job in jobs if job["status"] != "succeeded"), key=lambda uid: (len(uid), uid))
    named = f" ({', '.join(bad[:_MOST_NAMED])}{', …' if len(bad) > _MOST_NAMED else ''})" if bad else ""
    return f"{len(jobs)} jobs: {counts(jobs)}{named}"
