"""Addresses that are notified of the end of a job: what they look like, and how they are shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gpuwise.core.job.property import HIDDEN

MOST_CHARS = 2048
ADDRESS = (
    "an address of at most 2048 characters such as https://hooks.example.org/x or mailto:ada@example.org, without user "
    "and password"
)
"""What an address must be, for messages."""
MAIL = "mailto:"
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]{0,252}[A-Za-z0-9_])?"
_SERVER = rf"https?://(?:{_NAME}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::[0-9]{{1,5}})?"
_LOCAL = r"[A-Za-z0-9_+=\-]{1,64}(?:\.[A-Za-z0-9_+=\-]{1,64}){0,8}"
MAILBOX_PATTERN = rf"{_LOCAL}@{_NAME}"
ADDRESS_PATTERN = rf"{_SERVER}(?:[/?][!-~]*)?|{MAIL}{MAILBOX_PATTERN}"
"""Printable ASCII without spaces, so that nothing in an address can end a header; international names as punycode."""


def is_address(text: str) -> bool:
    """Whether a text is the address of a webhook or a mailbox."""
    if len(text) > MOST_CHARS or not re.fullmatch(ADDRESS_PATTERN, text):
        return False
    return text.startswith(MAIL) or _has_port(text)


def is_mailbox(text: str) -> bool:
    """Whether a text is a mailbox such as ada@example.org."""
    return re.fullmatch(MAILBOX_PATTERN, text) is not None


def masked(address: str) -> str:
    """An address without what may be a secret: the path and the query of a webhook, or all if it has another form."""
    if address.startswith(MAIL) and is_address(address):
        return address
    server = re.match(rf"({_SERVER})(?=[/?]|\Z)", address)
    if server is None:
        return HIDDEN
    return server[1] if address[server.end() :] in ("", "/") else f"{server[1]}/{HIDDEN}"


def destination(address: str) -> str:
    """Where an address leads to: scheme, host and port of a webhook; ``mailto:`` for all mail, through one server."""
    return MAIL if address.startswith(MAIL) else "{0.scheme}://{0.netloc}".format(urlsplit(address)).lower()


def _has_port(url: str) -> bool:
    """Whether a URL's host and port are possible; a port may be left out."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, an address in brackets that is none
        return False
