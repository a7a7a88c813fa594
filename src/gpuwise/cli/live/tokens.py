"""``tokens`` and ``audit``: who may use the server, and who did what."""

from __future__ import annotations

import sys
from time import time
from typing import Annotated, Any

import typer

from gpuwise.cli.live import options
from gpuwise.cli.live.options import OutputOption, ServerOption, StateOption
from gpuwise.core.units import parse_duration_s

COLUMNS = ("id", "user", "role", "created", "expires", "state")
ENTRY = ("user", "action", "target", "outcome", "address")


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = options.add_group(app, "tokens", tokens_command, no_args_is_help=True)
    options.add(group, "list", list_command)
    options.add(group, "create", create_command)
    options.add(group, "revoke", revoke_command)
    options.add(app, "audit", audit_command)


def tokens_command() -> None:
    """List, make and revoke tokens (admin)."""


def list_command(server: ServerOption = None, state: StateOption = None, output: OutputOption = None) -> None:
    """List the tokens, without their secrets."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.tables import listing

    listing(connect(server, state).get("tokens")["tokens"], output, _token, COLUMNS, drop=("created", "role"))


def create_command(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose it is.")],
    role: Annotated[str, typer.Option(metavar="admin|user|viewer", help="What its holder may do.")] = "user",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is good for, such as 30d; else until revoked.")
    ] = None,
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """Make a token and print its secret, this once.

    USER keeps it in a file that only they can read.
    """
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.output import show

    body = {"user": user, "role": role, "expires_in_s": None if expires is None else parse_duration_s(expires)}
    made = connect(server, state).post("tokens", body=body)
    if output is not None:
        show([made], output)
        return
    print(made["secret"])
    if sys.stdout.isatty():
        print(
            f"token {made['id']} for {user} ({role}). It is not shown again: keep it in a file with mode 0600\n"
            "and name that file in GPUWISE_TOKEN_FILE.",
            file=sys.stderr,
        )


def revoke_command(
    token: Annotated[str, typer.Argument(metavar="ID", help="A token's id, as tokens list shows it.")],
    server: ServerOption = None,
    state: StateOption = None,
) -> None:
    """End a token, at once and for good."""
    from gpuwise.cli.client.http import connect

    ended = connect(server, state).delete("tokens", token)
    print(f"token {ended['id']} of {ended['user']} is revoked")


def audit_command(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, metavar="N", help="At most so many.")] = 100,
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """List who did what, newest first (admin). What was refused is there too."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.tables import listing

    entries = connect(server, state).get("audit", query={"limit": limit})["audit"]
    listing(entries, output, _entry, ("when", *ENTRY), drop=("address",), nothing="nothing yet")


def _token(token: Any) -> dict[str, Any]:
    from gpuwise.cli.show.times import both

    expires = token["expires_at"]
    over = expires is not None and expires <= time()
    return {
        "id": token["id"],
        "user": token["user"],
        "role": token["role"],
        "created": both(token["created_at"]),
        "expires": both(expires) or "never",
        "state": "revoked" if token["revoked_at"] else "expired" if over else "good",
    }


def _entry(entry: Any) -> dict[str, Any]:
    from gpuwise.cli.show.times import both

    return {"when": both(entry["at"]), **{name: entry[name] for name in ENTRY}}
