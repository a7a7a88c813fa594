"""Errors as responses: one shape of JSON, the right status, no internals; and how the OpenAPI schema describes them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from gpuwise.api.schema.answers import Problem
from gpuwise.api.schema.parameters import in_words
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.property import HIDDEN, PropertyError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.schema import entries
from gpuwise.core.records import StoreError
from gpuwise.live.inbox import BusyError, ClosedError, LimitError
from gpuwise.service.live.errors import (
    ForbiddenError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    TooManyError,
    UnauthorizedError,
)

log = logging.getLogger("gpuwise.api")

CODES: Mapping[int, tuple[str, str]] = {
    400: ("bad_request", "The request is malformed, or not for this server."),
    401: ("unauthorized", "The token is missing or not valid."),
    403: ("forbidden", "The token's role does not allow this."),
    404: ("not_found", "There is no such thing, or the caller may not see it."),
    405: ("method_not_allowed", "The method is not allowed here."),
    408: ("timeout", "The body was not received in time."),
    409: ("conflict", "Not possible in the current state."),
    413: ("too_large", "The body is too large."),
    414: ("too_long", "The URL is too long."),
    415: ("unsupported_media_type", "The body must be JSON."),
    422: ("invalid", "A value is wrong; the message names it."),
    429: ("too_many_requests", "Too many requests, or too many jobs; see Retry-After."),
    431: ("headers_too_large", "The headers are too large."),
    500: ("internal", "Internal error; see the service's log."),
    503: ("unavailable", "Unavailable for the moment; see Retry-After."),
}
"""For each status the word for programs, and what it means."""
ANYWHERE = (400, 401, 403, 405, 408, 413, 414, 422, 429, 431, 500, 503)
"""Statuses that every route may answer with."""
RETRY_AFTER_S = 2
"""When nothing better is known."""
MAX_MISTAKES = 5
"""Mistakes of one request that are listed."""
SECRETS = frozenset(name for name, entry in entries(JobRequest).items() if entry.about.secret)
"""Properties of a job whose values are not repeated."""
Responses = dict[int | str, dict[str, Any]]

_STATUS: Mapping[type[GpuwiseError], int] = {
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    InvalidError: 422,
    PropertyError: 422,
    TooManyError: 429,
    LimitError: 429,
    BusyError: 503,
    ClosedError: 503,
    NoAnswerError: 503,
    StoreError: 503,
}


def problem(status: int, message: str, headers: Mapping[str, str] | None = None, field: str | None = None) -> Response:
    """A response that says what is wrong, and with which field."""
    code, _ = CODES.get(status, ("error", ""))
    shown = message.encode("utf-8", "replace").decode()
    about = {} if field is None else {"field": field}
    more = dict(headers or {})
    if status in (429, 503):
        more.setdefault("Retry-After", str(RETRY_AFTER_S))
    if status == 401:
        more.setdefault("WWW-Authenticate", 'Bearer realm="gpuwise"')
    return Response(to_json({"error": {"code": code, "message": shown, **about}}), status, more, "application/json")


def response_to(error: GpuwiseError) -> Response:
    """The response to a request that was refused, with a reason that its sender may know."""
    if type(error) is GpuwiseError:
        log.error("a request failed: %s", error)
        return problem(500, str(error))
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 409)
    headers = {}
    if isinstance(error, TooManyError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    field = error.name if isinstance(error, PropertyError) and not error.of else None
    return problem(status, str(error), headers, field)


async def on_gpuwise_error(request: Request, error: Exception) -> Response:
    """Errors that a user can act on."""
    assert isinstance(error, GpuwiseError)
    return response_to(error)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Invalid values, each with its name."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    listed = "; ".join(_mistake(each) for each in found[:MAX_MISTAKES])
    more = f"; and {len(found) - MAX_MISTAKES} more" if len(found) > MAX_MISTAKES else ""
    place = [str(part) for part in found[0]["loc"][1:2]]
    return problem(422, listed + more, field=place[0] if place else None)


async def on_http_error(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem(404, f"there is nothing at {request.url.path[:200]}; see /openapi.json")
    if error.status_code == 405:
        return problem(405, f"{request.method} is not allowed at {request.url.path[:200]}", error.headers)
    return problem(error.status_code, str(error.detail), error.headers)


def _mistake(found: Mapping[str, Any]) -> str:
    kind, place = found["type"], [str(part) for part in found["loc"][1:]]
    if kind == "json_invalid":
        return f"the body is not JSON: {found['ctx']['error']} at character {found['loc'][-1]}"
    if kind == "unknown_field":
        return str(found["msg"])
    name = ".".join(place) or "the body"
    if kind == "missing":
        return f"{name} is missing" if place else "a body of JSON is missing"
    value = HIDDEN if place[:1] and place[0] in SECRETS else _short(found.get("input"))
    if kind == "string_pattern_mismatch":
        return f"{name} is {value}; it must be {in_words(found['ctx']['pattern'])}"
    message = found["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    return f"{name} is {value}; {message}"


def _short(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, bytes):
        return "not sent as application/json"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def documented_problems(*statuses: int) -> Responses:
    """Errors that a route may answer with, for the OpenAPI schema."""
    found: Responses = {}
    for status in statuses:
        found[status] = {"model": Problem, "description": CODES[status][1]}
        if status in (429, 503):
            found[status]["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return found


def documented(model: type[BaseModel], description: str, *errors: int, status: int = 200) -> Responses:
    """What a route answers with when it succeeds, and errors of its own, for the OpenAPI schema."""
    return {status: {"model": model, "description": description}, **documented_problems(*errors)}
