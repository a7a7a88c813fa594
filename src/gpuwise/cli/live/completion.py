"""What a shell offers when the tab key is pressed; nothing at all if the server does not answer at once."""

from __future__ import annotations

from typing import Any

import typer

TIMEOUT_S = 0.7


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
    from gpuwise.policies.registry import describe

    return [(name, what) for name, what in describe().items() if name.startswith(incomplete)]


def _ask(ctx: typer.Context, path: str) -> dict[str, Any]:
    from gpuwise.cli.client.http import Client
    from gpuwise.cli.client.target import find_target

    try:
        target = find_target(ctx.params.get("server"), ctx.params.get("state"))
        found = Client(target, TIMEOUT_S, retries=0).get(path)
        return found if isinstance(found, dict) else {}
    except Exception:  # a shell that is completing a word has no place for complaints
        return {}
