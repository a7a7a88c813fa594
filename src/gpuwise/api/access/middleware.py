"""The layers around the routes: security headers, sizes of requests, and who sends them to whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from ipaddress import ip_address

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuwise.api.access.authentication import Authenticator
from gpuwise.api.access.connection_limits import connection_of
from gpuwise.api.errors import problem, response_to
from gpuwise.core.errors import GpuwiseError

log = logging.getLogger("gpuwise.api")

PUBLIC = frozenset((("GET", "/v1/health"), ("POST", "/v1/session")))
"""What needs no token under /v1; the latter checks one itself."""
MAX_BODY_BYTES = 1 << 20
BODY_TIMEOUT_S = 30.0
"""For a whole body."""
MAX_URL_BYTES = 8192
MAX_HEADER_BYTES = 16_384

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""On every response that does not set them itself."""
_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class SecurityHeadersMiddleware:
    """Adds `HEADERS` to every response, and answers 500 when a handler crashed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _RAW if each[0] not in own)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            log.exception("%s %s crashed", scope["method"], scope["path"])
            if started:
                raise
            await problem(500, "internal error; see the service's log")(scope, receive, send_with_headers)


class SizeLimitMiddleware:
    """Refuses requests whose URL, headers or body are too large, whether they declare their size or not."""

    def __init__(self, app: ASGIApp, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, counting its body."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wrong = self._check(scope)
        if wrong is not None:
            return await problem(*wrong, {"Connection": "close"})(scope, receive, send)
        read, complete, deadline = 0, False, asyncio.get_running_loop().time() + BODY_TIMEOUT_S

        async def counted() -> Message:
            nonlocal read, complete
            message = await receive() if complete else await _receive_in_time(receive, deadline)
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if read > self._max_body_bytes:
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        await self._app(scope, counted, send)

    def _check(self, scope: Scope) -> tuple[int, str] | None:
        """What is wrong with a request before its body is read."""
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
            return 414, f"the URL is longer than {MAX_URL_BYTES} bytes"
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return 431, f"the headers are longer than {MAX_HEADER_BYTES} bytes"
        if any(character < " " or character == "\x7f" for character in scope["path"]):
            return 400, "the URL has control characters in it"
        declared = [value for name, value in scope["headers"] if name == b"content-length"]
        if declared and declared[0].isdigit() and int(declared[0]) > self._max_body_bytes:
            return 413, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self._max_body_bytes} bytes"


async def _receive_in_time(receive: Receive, deadline: float) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError as error:
        text = f"the body was not received within {BODY_TIMEOUT_S:g} s"
        raise HTTPException(408, text, {"Connection": "close"}) from error


class AccessMiddleware:
    """Refuses requests that are not for this server, unauthenticated or too frequent; the others get their caller."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, hosts: frozenset[str]) -> None:
        self._app = app
        self._authenticator = authenticator
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "")
            if not self._is_ours(_name(host)):
                text = f"this server is not called {host[:100]!r}; use its address, or start it with --allow-host NAME"
                return await problem(400, text)(scope, receive, send)
            path: str = scope["path"]
            if path.startswith("/v1/") and (scope["method"], path) not in PUBLIC:
                try:
                    caller = scope["gpuwise.caller"] = self._authenticator.caller(scope, headers)
                except GpuwiseError as error:
                    return await response_to(error)(scope, receive, send)
                if (connection := connection_of(scope)) is not None:
                    connection.authenticated(caller.user)
        await self._app(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        """Whether this server may be called so: by an IP address, or one of its names.

        Another name may be one that a foreign page has made to resolve to this server (DNS rebinding).
        """
        if name in self._hosts:
            return True
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _name(host: str) -> str:
    """A host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
