"""What the server's refusals mean to a user, and what to do about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import Message

from gpuwise.cli.client.errors import LiveError, NoSuchJobError, NotPermittedError, UnreachableError
from gpuwise.cli.client.target import Target

_MEANINGS: Mapping[int, tuple[type[LiveError], str, str]] = {
    # what it is where the server does not say, and what to do
    400: (LiveError, "the server does not understand the request", ""),
    401: (
        NotPermittedError,
        "the token is not accepted",
        "it came from {token_from}; an admin makes a new one with: gpuwise tokens create USER",
    ),
    403: (NotPermittedError, "this token may not do that", "an admin can, or can give you another role"),
    404: (LiveError, "{url} has no {path}", "is it a gpuwise server, as new as this command?"),
    409: (LiveError, "the job cannot do that as it stands", "gpuwise show ID tells how it stands"),
    413: (LiveError, "the request is too large", "shorten the command, the environment or the array"),
    422: (LiveError, "the server refuses a value in the request", ""),
    429: (LiveError, "the server has had too many requests", "try again in {later_s:g} s"),
    503: (UnreachableError, "{url} cannot serve now", "try again in {later_s:g} s"),
}


def refusal(target: Target, path: str, status: int, headers: Message, body: bytes) -> LiveError:
    """The error that an answer other than 2xx stands for."""
    message = _message(body)
    if 300 <= status < 400:
        return LiveError(f"{target.url} sends us to {headers.get('Location', 'elsewhere')}; give that as --server")
    if status == 404 and message and path.startswith("/v1/jobs/"):
        return NoSuchJobError(message)
    kind, what, hint = _MEANINGS.get(status, (UnreachableError, "{url} failed with {status}", "see its log"))
    words = {"url": target.url, "path": path, "status": status, "token_from": target.token_from}
    hint = "" if message and status in (404, 409, 429) else hint.format(**words, later_s=_later_s(headers))
    error = kind("; ".join(filter(None, (message or what.format(**words), hint))))
    error.later_s = _later_s(headers) if status in (429, 503) else None
    return error


def _message(body: bytes) -> str:
    """What the server says is wrong; empty if it does not say so as a gpuwise server would."""
    try:
        said = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return said.strip() if isinstance(said, str) else ""


def _later_s(headers: Message) -> float:
    said = headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else 1.0
