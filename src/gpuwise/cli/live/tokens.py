"""``tokens`` and ``audit``: who may use the server, and who did what."""

from __future__ import annotations

import sys
from time import time
from typing import Annotated, Any

import typer

from gpuwise.cli.options import OutputOption, Server
from gpuwise.cli.show.tables import Output, listing, show
from gpuwise.cli.show.times import moment
from gpuwise.core.records import UserRole
from gpuwise.core.units import parse_duration_s

COLUMNS = ("id", "user", "role", "created", "expires", "state")
TokenArgument = Annotated[str, typer.Argument(metavar="ID", help="A token's id, as tokens list shows it.")]
ENTRY = ("user", "action", "target", "outcome", "address")


def tokens_command() -> None:
    """List, make, rotate and revoke tokens."""


def list_command(*, server: Server, output: OutputOption = None) -> None:
    """List the tokens, without their secrets."""
    listing(server.connect().get("tokens")["tokens"], output, _token, COLUMNS, drop=("created", "role"))


def create_command(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user it is for.")],
    role: Annotated[UserRole, typer.Option(help="What its user may do.")] = UserRole.USER,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid, such as 30d; else until revoked.")
    ] = None,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Make a token and print its secret, this once.

    USER keeps it in a file that only they can read.
    """
    client = server.connect()
    body = {"user": user, "role": role, "expires_in_s": _seconds(expires)}
    _print_secret(client.post("tokens", body=body), output)
    if role != UserRole.VIEWER:
        _warn_of_shared_account(client.get("status"), user)


def _warn_of_shared_account(status: Any, user: str) -> None:
    """Says what jobs of another user can do where they run as the account of the service."""
    account = status.get("account")
    if account and status["jobs_run_as"] == account and user not in (account, status["user"]):
        print(
            f"gpuwise: jobs of {user} run as {account}, the account of the service, and can read its files, its "
            "administrator's token among them; to run them as other accounts, start gpuwise up as root with --as-user",
            file=sys.stderr,
        )


def rotate_command(
    token: TokenArgument,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long the new one is valid; else until the old one expires.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long the old one stays valid, such as 1h; else it ends now.")
    ] = None,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Replace a token, and print the new secret, this once.

    The new one has the same user and role. The owner's token in the state folder is replaced there, too.
    """
    body = {"expires_in_s": _seconds(expires), "grace_s": _seconds(grace) or 0.0}
    _print_secret(server.connect().post("tokens", token, "rotate", body=body), output)


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse_duration_s(text)


def _print_secret(made: Any, output: Output | None) -> None:
    if output is not None:
        show([made], output)
        return
    print(made["secret"])
    if sys.stdout.isatty():
        print(
            f"token {made['id']} for {made['user']} ({made['role']}). It is not shown again: keep it in a file with\n"
            "mode 0600 and name that file in GPUWISE_TOKEN_FILE.",
            file=sys.stderr,
        )


def revoke_command(
    token: TokenArgument,
    *,
    server: Server,
) -> None:
    """Revoke a token, at once and for good."""
    ended = server.connect().delete("tokens", token)
    print(f"token {ended['id']} of {ended['user']} is revoked")


def audit_command(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, metavar="N", help="Maximum number of entries.")
    ] = 100,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List who did what, newest first (admin). Refused requests are there too."""
    entries = server.connect().get("audit", query={"limit": limit})["audit"]
    listing(entries, output, _entry, ("when", *ENTRY), drop=("address",), nothing="no entries")


def _token(token: Any) -> dict[str, Any]:
    ends = [at for at in (token["expires_at"], token["revoked_at"]) if at is not None]
    return {
        "id": token["id"],
        "user": token["user"],
        "role": token["role"],
        "created": moment(token["created_at"]),
        "expires": moment(min(ends, default=None)) or "never",
        "state": _state(token, time()),
    }


def _state(token: Any, now: float) -> str:
    if token["revoked_at"] is not None:
        return "revoked" if token["revoked_at"] <= now else "rotated"
    return "valid" if token["expires_at"] is None or now < token["expires_at"] else "expired"


def _entry(entry: Any) -> dict[str, Any]:
    return {"when": moment(entry["at"]), **{name: entry[name] for name in ENTRY}}
