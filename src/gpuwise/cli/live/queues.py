"""``queues``: the limits of queues."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpuwise.cli.options import OutputOption, Server, complete_queues
from gpuwise.cli.show.tables import listing
from gpuwise.core.errors import GpuwiseError

COLUMNS = ("name", "jobs", "used_gpus", "max_gpus", "max_jobs", "weight", "users")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A queue.", autocompletion=complete_queues)]


def queues_command(ctx: typer.Context, *, server: Server, output: OutputOption = None) -> None:
    """List the queues; set and delete change their limits."""
    if ctx.invoked_subcommand is not None:
        return
    queues = server.connect().get("queues")["queues"]
    listing(queues, output, _as_shown, COLUMNS, drop=("weight", "users"), nothing="no queue has limits or jobs")


def set_command(
    name: NameArgument,
    max_gpus: Annotated[
        str | None, typer.Option(metavar="N", help="GPUs its jobs may use at a time; none is no limit.")
    ] = None,
    max_jobs: Annotated[
        str | None, typer.Option(metavar="N", help="Jobs that have not ended; none is no limit.")
    ] = None,
    weight: Annotated[float | None, typer.Option(metavar="X", help="Its share when other queues wait too.")] = None,
    users: Annotated[str | None, typer.Option(metavar="A,B", help="Who may submit to it; all is every user.")] = None,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Set a queue's limits (admin); what is not given stays as it is."""
    limits: dict[str, Any] = {}
    if max_gpus is not None:
        limits["max_gpus"] = _limit("--max-gpus", max_gpus, float)
    if max_jobs is not None:
        limits["max_jobs"] = _limit("--max-jobs", max_jobs, int)
    if weight is not None:
        limits["weight"] = weight
    if users is not None:
        limits["users"] = [] if users == "all" else [each for each in users.split(",") if each]
    if not limits:
        raise GpuwiseError("say what to set: --max-gpus, --max-jobs, --weight or --users")
    client = server.connect()
    known = {queue["name"]: queue for queue in client.get("queues")["queues"]}.get(name, {})
    kept = {key: known[key] for key in ("max_gpus", "max_jobs", "weight", "users") if key in known}
    listing([client.put("queues", name, body={**kept, **limits})], output, _as_shown, COLUMNS)


def delete_command(name: NameArgument, *, server: Server) -> None:
    """Remove a queue's limits (admin); its jobs stay."""
    server.connect().delete("queues", name)
    print(f"queue {name} has no limits now")


def _limit(option: str, text: str, kind: type[float] | type[int]) -> float | None:
    if text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        raise GpuwiseError(f"{option} is {text!r}; it must be a number, or none") from None


def _as_shown(queue: Any) -> dict[str, Any]:
    return {**queue, "users": ", ".join(queue["users"]) or "all"}
