"""One connection: how much it may send before that is a request, and how long it may take."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gpuwise.api.access.connection_limits import ConnectionLimits, Stage
from gpuwise.api.access.middleware import MAX_BODY_BYTES
from gpuwise.api.errors import problem

REQUEST_TIMEOUT_S = 10.0
"""For the complete headers of a request, since the connection was made or the last response was complete."""
STALL_TIMEOUT_S = 30.0
"""For a client to read some more of a response."""
MAX_HEAD_BYTES = 65_536
"""Of a request line and headers that are incomplete; complete ones have narrower limits."""
MAX_HEADERS = 200
MAX_SENT_BODY_BYTES = 8 * MAX_BODY_BYTES
"""Of a body as it is sent, with the sizes of its chunks and what follows them."""
MAX_PIPELINED = 16
"""Requests that wait for the response to an earlier one."""


def protocol(limits: ConnectionLimits, tls: ssl.SSLContext | None = None) -> type[asyncio.Protocol]:
    """What makes connections for uvicorn, which need not do TLS itself then."""
    connection = partial(Connection, limits=limits)
    return cast(type[asyncio.Protocol], connection if tls is None else partial(Handshake, connection, limits, tls))


class Handshake(asyncio.Protocol):
    """A connection during its TLS handshake: counted, timed, and closed for another if need be.

    asyncio's servers say nothing of a connection before that, so a socket is taken over from one without TLS.
    """

    def __init__(
        self, connection: Callable[..., asyncio.Protocol], limits: ConnectionLimits, tls: ssl.SSLContext, **named: Any
    ) -> None:
        self._make = partial(connection, **named)
        self._limits = limits
        self._tls = tls
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins the handshake on a second handle of the socket; the first is closed before anything is read."""
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        transport.abort()
        self._limits.enter(self, Stage.NEW, _address(transport))
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(self._socket))

    async def _shake_hands(self, taken: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, taken, ssl=self._tls, ssl_handshake_timeout=REQUEST_TIMEOUT_S
            )
        except OSError:  # errors of TLS are among these
            taken.close()
        finally:
            self._limits.leave(self)

    def drop(self) -> None:
        """Ends the handshake."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


class Connection(HttpToolsProtocol):
    """A connection of uvicorn's that is counted, timed and limited in what it sends."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*args, **named)
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._user: str | None = None
        self._over = False
        self._in_head = True
        self._advanced = False
        self._incomplete_bytes = 0

    # -- beginning and end --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Counts the connection, and begins to read from it."""
        super().connection_made(transport)
        self._limits.enter(self, Stage.NEW, _address(transport))
        self._set_timer(REQUEST_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops counting the connection."""
        self._over = True
        self._limits.leave(self)
        self._stop_timer()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Closes the connection at once, with what is still to be sent."""
        self._over = True
        self.transport.abort()

    # -- requests -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Reads on, unless what is incomplete has become too large."""
        if self._over:
            return
        self._advanced = False
        super().data_received(data)
        self._incomplete_bytes += 0 if self._advanced else len(data)
        if self._incomplete_bytes > (MAX_HEAD_BYTES if self._in_head else MAX_SENT_BODY_BYTES):
            self._refuse()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; those after the body are of no use."""
        if not self._in_head or self._over:
            return
        if len(self.headers) >= MAX_HEADERS:
            self._refuse()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer a request."""
        self._advance(in_head=False)
        if len(self.pipeline) >= MAX_PIPELINED:
            self.drop()
        if not self._over:
            self._stop_timer()
            self.scope["state"]["connection"] = self
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        if not self._over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Expects the next request."""
        self._advance(in_head=True)
        if not self._over:
            super().on_message_complete()

    def _advance(self, *, in_head: bool) -> None:
        self._in_head, self._advanced, self._incomplete_bytes = in_head, True, 0

    def _refuse(self) -> None:
        """Closes a connection whose request is too large, if possible with a word about it."""
        if self._over:
            return
        self._over = True
        if self.cycle is None or self.cycle.response_complete:
            answer = problem(431, f"the headers are longer than {MAX_HEAD_BYTES} bytes, or more than {MAX_HEADERS}")
            lines = [b"HTTP/1.1 431 ", *(b"\r\n%b: %b" % each for each in answer.raw_headers)]
            self.transport.write(b"".join([*lines, b"\r\nconnection: close\r\n\r\n", answer.body]))
        self.transport.close()

    # -- what becomes of them -----------------------------------------------------------------------------------------

    def authenticated(self, user: str) -> None:
        """Notes whose the request is."""
        self._user = user
        self._enter(Stage.AT_WORK)

    def streams(self) -> None:
        """Notes that the response is a stream."""
        self._enter(Stage.STREAM)

    def on_response_complete(self) -> None:
        """Waits for the next request."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._over:
            self._enter(Stage.IDLE)
            self._set_timer(STALL_TIMEOUT_S if self._unsent() else REQUEST_TIMEOUT_S)

    def _enter(self, stage: Stage) -> None:
        if self._user is not None and not self._over:
            self._limits.enter(self, stage, self._user)

    # -- time ---------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Waits for the client to read."""
        super().pause_writing()
        self._set_timer(STALL_TIMEOUT_S)

    def resume_writing(self) -> None:
        """Writes on, since the client has read."""
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()

    def _set_timer(self, timeout_s: float) -> None:
        self._stop_timer()
        self._unsent_bytes = self._unsent()
        self._timer = self.loop.call_later(timeout_s, self._on_timer, timeout_s)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self, timeout_s: float) -> None:
        """Drops the connection, unless the client has read some of what it was sent before."""
        if 0 < self._unsent() < self._unsent_bytes:
            self._set_timer(timeout_s)
        else:
            self.drop()

    def _unsent(self) -> int:
        return self.transport.get_write_buffer_size()
