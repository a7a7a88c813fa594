"""The outermost layers: how large a request may be, what every answer carries, and what a crash looks like."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuwise.api.errors import crashed, problem

log = logging.getLogger("gpuwise.api")

LOGIN_PATH = "/login"
MAX_BODY_BYTES = 1 << 20
BODY_PATIENCE_S = 20.0
"""How long the next part of a body may take."""
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
"""On every answer that does not set them itself."""
_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Shield:
    """Gives every answer its headers, and answers for code that crashed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                if scope["path"] == LOGIN_PATH:
                    scope["query_string"] = b""  # servers now log the address; the secret in it is not for logs
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _RAW if each[0] not in own)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            log.exception("%s %s crashed", scope["method"], scope["path"])
            if begun:
                raise
            await crashed()(scope, receive, send_with_headers)


class SizeLimit:
    """Refuses requests whose address, headers or body are too large, said beforehand or not."""

    def __init__(self, app: ASGIApp, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, counting its body."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wrong = self._look_at(scope)
        if wrong is not None:
            return await problem(*wrong, {"Connection": "close"})(scope, receive, send)
        read, complete = 0, False

        async def counted() -> Message:
            nonlocal read, complete
            message = await receive() if complete else await _soon(receive)
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if read > self._max_body_bytes:
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        await self._app(scope, counted, send)

    def _look_at(self, scope: Scope) -> tuple[int, str] | None:
        """What is wrong with a request before its body is read."""
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
            return 414, f"the address is longer than {MAX_URL_BYTES} bytes"
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return 431, f"the headers are longer than {MAX_HEADER_BYTES} bytes"
        if any(character < " " or character == "\x7f" for character in scope["path"]):
            return 400, "the address has control characters in it"
        said = [value for name, value in scope["headers"] if name == b"content-length"]
        if said and said[0].isdigit() and int(said[0]) > self._max_body_bytes:
            return 413, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self._max_body_bytes} bytes"


async def _soon(receive: Receive) -> Message:
    try:
        async with asyncio.timeout(BODY_PATIENCE_S):
            return await receive()
    except TimeoutError as error:
        text = f"the body did not come within {BODY_PATIENCE_S:g} s"
        raise HTTPException(408, text, {"Connection": "close"}) from error
