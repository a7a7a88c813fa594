"""Options that several commands have, and what a shell completes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.show.tables import Output

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client

COMPLETION_TIMEOUT_S = 0.7
"""A shell offers nothing if the server does not answer at once."""


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs that have not ended, with their names."""
    jobs = _ask(ctx, "queue").get("jobs", [])
    return [(job["id"], f"{job['name']} {job['status']}".strip()) for job in jobs if job["id"].startswith(incomplete)]


def complete_queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queues."""
    queues = _ask(ctx, "queues").get("queues", [])
    return [queue["name"] for queue in queues if queue["name"].startswith(incomplete)]


def complete_policies(incomplete: str) -> list[tuple[str, str]]:
    """Names of policies, with what they do."""
    from gpuwise.service.offline.catalogue import policies

    return [(row["name"], row["what"]) for row in policies() if row["name"].startswith(incomplete)]


def _ask(ctx: typer.Context, path: str) -> dict[str, Any]:
    from gpuwise.cli.client.http import Client
    from gpuwise.cli.client.target import find_target

    try:
        target = find_target(ctx.params.get("server"), ctx.params.get("state"))
        found = Client(target, COMPLETION_TIMEOUT_S, retries=0).get(path)
        return found if isinstance(found, dict) else {}
    except Exception:  # a shell that is completing a word has no place for complaints
        return {}


OutputOption = Annotated[
    Output | None, typer.Option("-o", "--output", help="table, wide, json or csv; a pipe gets csv.")
]
JobArgument = Annotated[str, typer.Argument(metavar="ID", help="A job.", autocompletion=complete_jobs)]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="Jobs; an array's id is all its tasks.", autocompletion=complete_jobs),
]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.", autocompletion=complete_queues)]


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a command speaks to."""

    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="The server; $GPUWISE_SERVER, else the one of the state folder."),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", help="The server's state folder; $GPUWISE_STATE, else yours."),
    ] = None

    def connect(self) -> Client:
        """A client of it."""
        from gpuwise.cli.client.http import connect

        return connect(self.server, self.state)
