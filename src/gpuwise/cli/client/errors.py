"""What can go wrong between the command line and the server: errors with their exit codes, and refusals in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from gpuwise.cli.client.target import Target

FAILED, REFUSED, UNREACHABLE, NOT_PERMITTED, NO_SUCH_JOB, INTERRUPTED = 1, 2, 3, 4, 5, 130

EXIT_CODES = (
    "Exit codes: 0 done; 1 a job failed; 2 wrong use, or the server refused; 3 the server cannot be reached or cannot "
    "serve now; 4 not permitted; 5 no such job; 130 interrupted. Waiting for a single job gives the job's own."
)


class LiveError(GpuwiseError):
    """A request that came to nothing."""

    exit_code = REFUSED


class UnreachableError(LiveError):
    """The server does not answer, or cannot serve now."""

    exit_code = UNREACHABLE


class BrokenError(UnreachableError):
    """The connection broke while a request was under way: it may have been carried out or not."""


class NotPermittedError(LiveError):
    """The token is missing, not known, or not allowed to do this."""

    exit_code = NOT_PERMITTED


class NoSuchJobError(LiveError):
    """There is no such job, or it is another user's."""

    exit_code = NO_SUCH_JOB


_MEANINGS: Mapping[int, tuple[type[LiveError], str, str]] = {
    # what is wrong where the server does not say, and what to do
    400: (LiveError, "the server does not understand the request", ""),
    401: (
        NotPermittedError,
        "the token is not accepted",
        "it came from {token_from}; an admin makes a new one with: gpuwise tokens create USER",
    ),
    403: (NotPermittedError, "this token may not do that", "an admin can, or can give you another role"),
    404: (LiveError, "{url} has no {path}", "is it a gpuwise server, as new as this command?"),
    409: (LiveError, "the job's status does not allow that", "see it with: gpuwise show ID"),
    413: (LiveError, "the request is too large", "shorten the command, the environment or the array"),
    422: (LiveError, "the server refuses a value in the request", ""),
    429: (LiveError, "the server has had too many requests", "try again in {later_s} s"),
    503: (UnreachableError, "{url} cannot serve now", "try again in {later_s} s"),
}


def refusal(target: Target, path: str, status: int, headers: Mapping[str, str], body: bytes) -> LiveError:
    """The error that an answer other than 2xx stands for."""
    message = _message(body)
    if 300 <= status < 400:
        return LiveError(f"{target.url} sends us to {headers.get('Location', 'elsewhere')}; give that as --server")
    if status == 404 and message and path.startswith("/v1/jobs/"):
        return NoSuchJobError(message)
    kind, what, hint = _MEANINGS.get(status, (UnreachableError, "{url} failed with {status}", "see the controller log"))
    later_s = headers.get("Retry-After", "")
    words = {
        "url": target.url, "path": path, "status": status, "token_from": target.token_from,
        "later_s": later_s if later_s.isdecimal() else "1",
    }  # fmt: skip
    hint = "" if message and status in (404, 409, 429) else hint.format(**words)
    return kind("; ".join(filter(None, (message or what.format(**words), hint))))


def _message(body: bytes) -> str:
    """What the server says is wrong; empty if it does not say so as a gpuwise server would."""
    try:
        said = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return said.strip() if isinstance(said, str) else ""
