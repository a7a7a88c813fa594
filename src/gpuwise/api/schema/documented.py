"""What the schema says of answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from gpuwise.api.schema.answers import Problem

Responses = dict[int | str, dict[str, Any]]

_MEANINGS = {
    400: "The request is not for this server, or not one at all.",
    401: "No token, or not a good one.",
    403: "The token's role does not allow this.",
    404: "No such thing, or none that the caller may know of.",
    405: "Not with this method.",
    408: "The body did not come in time.",
    409: "Not possible as things stand.",
    413: "The body is too large.",
    414: "The address is too long.",
    422: "A value is wrong; the message names it.",
    429: "Too many requests, or too many jobs; see Retry-After.",
    431: "The headers are too large.",
    500: "Something went wrong inside the server; see its log.",
    503: "Not now; see Retry-After.",
}
ANYWHERE = (400, 401, 403, 405, 408, 413, 414, 422, 429, 431, 500, 503)


def problems(*statuses: int) -> Responses:
    """Errors that a route may answer with."""
    found: Responses = {}
    for status in statuses:
        found[status] = {"model": Problem, "description": _MEANINGS[status]}
        if status in (429, 503):
            found[status]["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return found


def gives(model: type[BaseModel], description: str, *errors: int, status: int = 200) -> Responses:
    """What a route answers with when all is well, and errors of its own."""
    return {status: {"model": model, "description": description}, **problems(*errors)}
