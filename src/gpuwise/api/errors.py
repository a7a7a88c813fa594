"""Errors as answers: one shape of JSON, the right status, nothing of the inside."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from gpuwise.api.schema.patterns import in_words
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.property import PropertyError
from gpuwise.core.records import StoreError
from gpuwise.live.inbox import BusyError, ClosedError, LimitError
from gpuwise.service.live.refusals import (
    ForbiddenError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    TooManyError,
    UnauthorizedError,
)

log = logging.getLogger("gpuwise.api")

CODES: Mapping[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    414: "too_long",
    415: "unsupported_media_type",
    422: "invalid",
    429: "too_many_requests",
    431: "headers_too_large",
    500: "internal",
    503: "unavailable",
}
RETRY_AFTER_S = 2
"""When to ask again where nothing better is known."""
MOST_TOLD = 5
"""So many mistakes of one request are told."""

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
    """An answer that says what is wrong, and with which field."""
    shown = message.encode("utf-8", "replace").decode()
    about = {} if field is None else {"field": field}
    body = to_json({"error": {"code": CODES.get(status, "error"), "message": shown, **about}})
    more = dict(headers or {})
    if status in (429, 503):
        more.setdefault("Retry-After", str(RETRY_AFTER_S))
    if status == 401:
        more.setdefault("WWW-Authenticate", 'Bearer realm="gpuwise"')
    return Response(body, status, more, "application/json")


def refused(error: GpuwiseError) -> Response:
    """The answer to a request that cannot be met, for a reason that its sender may know."""
    if type(error) is GpuwiseError:
        log.error("a request failed: %s", error)
        return problem(500, str(error))
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 409)
    headers = {}
    if isinstance(error, TooManyError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    field = error.name if isinstance(error, PropertyError) and not error.of else None
    return problem(status, str(error), headers, field)


def crashed() -> Response:
    """The answer when something went wrong that nobody foresaw; the log has the rest."""
    return problem(500, "something went wrong inside the server; see its log")


async def on_refusal(request: Request, error: Exception) -> Response:
    """Errors that a user can act on."""
    assert isinstance(error, GpuwiseError)
    return refused(error)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Values that are not what they must be, each with its name."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    told = "; ".join(_mistake(each) for each in found[:MOST_TOLD])
    more = f"; and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    place = [str(part) for part in found[0]["loc"][1:2]]
    return problem(422, told + more, field=place[0] if place else None)


async def on_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem(404, f"there is nothing at {request.url.path[:200]}")
    if error.status_code == 405:
        return problem(405, f"{request.method} is not possible at {request.url.path[:200]}", error.headers)
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
    if kind == "string_pattern_mismatch":
        return f"{name} is {_short(found.get('input'))}; it must be {in_words(found['ctx']['pattern'])}"
    message = found["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    return f"{name} is {_short(found.get('input'))}; {message}"


def _short(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, bytes):
        return "not sent as application/json"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
