"""``page``: a link to the page."""

from __future__ import annotations

from gpuwise.cli.options import Server


def page_command(*, server: Server) -> None:
    """Print a link that opens the page, logged in as you. It works once, within 15 minutes."""
    client = server.connect()
    print(login_link(client.target.url, client.post("session", "code")["code"]))


def login_link(url: str, code: str) -> str:
    """What opens the page of a server and logs in; browsers send what is after # to no server."""
    return f"{url}/#login={code}"
