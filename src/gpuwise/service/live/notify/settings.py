"""What a deployment allows of notifications: hosts of webhooks, and the server that mail is sent through."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.notify import is_mailbox

PUBLIC, NONE = "public", "none"
TLS_PORT, DEFAULT_PORT = 465, 25
USER, PASSWORD, PASSWORD_FILE = "GPUWISE_SMTP_USER", "GPUWISE_SMTP_PASSWORD", "GPUWISE_SMTP_PASSWORD_FILE"
"""Variables of the service's environment."""
_HOST = r"[A-Za-z0-9_.\-]{1,253}|[0-9A-Fa-f:]{2,45}"


@dataclass(frozen=True, slots=True)
class MailServer:
    """A server that accepts mail for others, and the account on it."""

    host: str
    port: int
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Where notifications may be sent."""

    hosts: frozenset[str] = frozenset((PUBLIC,))
    """Names and addresses that webhooks may have; ``public`` is every host with a public address."""
    mail: MailServer | None = None


def webhook_hosts(text: str) -> frozenset[str]:
    """Hosts from text such as ``public,hooks.internal``, or ``none``."""
    words = [word.strip().strip("[]").lower() for word in text.split(",")]
    if words == [NONE]:
        return frozenset()
    if NONE in words or not all(re.fullmatch(_HOST, word) for word in words):
        what = "none, or public and names of hosts without ports, such as public,hooks.internal"
        raise GpuwiseError(f"--webhook-hosts is {text!r}; it must be {what}")
    return frozenset(words)


def mail_server(smtp: str | None, sender: str | None, environment: Mapping[str, str] = os.environ) -> MailServer | None:
    """The server from ``HOST`` or ``HOST:PORT``, with the account that the environment names."""
    if smtp is None:
        if sender is not None:
            raise GpuwiseError("--mail-from needs a mail server; give it with --smtp HOST")
        return None
    match = re.fullmatch(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9_.\-]{1,253})(?::(\d{1,5}))?", smtp)
    if match is None or not 0 < int(match[2] or DEFAULT_PORT) < 2**16:
        raise GpuwiseError(f"--smtp is {smtp!r}; it must be a mail server such as mail.example.org or localhost:587")
    sender = sender or f"gpuwise@{socket.gethostname()}"
    if not is_mailbox(sender):
        raise GpuwiseError(f"--mail-from is {sender!r}; it must be a mailbox such as gpuwise@example.org")
    return MailServer(match[1].strip("[]"), int(match[2] or DEFAULT_PORT), sender, *_account(environment))


def _account(environment: Mapping[str, str]) -> tuple[str, str]:
    """User and password; both are empty if the server needs none."""
    user, password, path = (environment.get(name, "") for name in (USER, PASSWORD, PASSWORD_FILE))
    if path:
        try:
            password = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise GpuwiseError(f"{PASSWORD_FILE}: {path} cannot be read ({error}); name a file of text") from None
    if bool(user) != bool(password):
        raise GpuwiseError(f"{USER} and {PASSWORD}, or {PASSWORD_FILE}, go together; set both or none")
    return user, password
