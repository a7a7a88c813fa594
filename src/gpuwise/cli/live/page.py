"""``page``: a link to the page."""

from __future__ import annotations

from gpuwise.cli.options import Server


def page_command(*, server: Server) -> None:
    """Print a link that opens the page, logged in as you."""
    client = server.connect()
    client.get("status")  # a link with a token that the server does not accept would help no user
    print(login_link(client.target.url, client.target.token))


def login_link(url: str, token: str) -> str:
    """What opens the page of a server, logged in as the user of a token."""
    return f"{url}/login?token={token}"
