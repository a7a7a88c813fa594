"""Receivers of notifications on this machine: a web server that does as a test says, and a mail server."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import BaseThreadedController
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Receiver:
    """A web server; it answers each request with the next of some statuses, and then always with the last.

    One that does not listen yet refuses connections; its port is its own all the same.
    """

    def __init__(self, *statuses: int, tls: ssl.SSLContext | None = None, listens: bool = True) -> None:
        self.received: list[Received] = []
        self.released = threading.Event()
        """Whether those answer that wait: status 0 is none before this."""
        self._statuses = list(statuses) or [200]
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        self._server.server_bind()
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        if listens:
            self.listen()

    def listen(self) -> None:
        """Accepts connections from now on."""
        self._server.server_activate()
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = receiver._receive(Received(self.path, dict(self.headers), body))
                if status == 0:
                    receiver.released.wait(60)
                    return
                self.send_response(status)
                self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def _receive(self, received: Received) -> int:
        with self._lock:
            self.received.append(received)
            return self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]

    def answer(self, *statuses: int) -> None:
        """The statuses to answer with from now on."""
        with self._lock:
            self._statuses = list(statuses)

    def close(self) -> None:
        self.released.set()
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(10)
        self._server.server_close()


@contextmanager
def silent() -> Iterator[tuple[str, Callable[[], int]]]:
    """The URL of a port where connections are accepted by the system and never answered, and how many there were."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        listening.setblocking(False)

        def count() -> int:
            while True:
                try:
                    connections.append(listening.accept()[0])
                except BlockingIOError:
                    return len(connections)

        yield f"http://127.0.0.1:{listening.getsockname()[1]}", count
        for each in connections:
            each.close()


class _OnSocket(BaseThreadedController):
    """Serves on a socket that is bound before, so that no other program can have its port."""

    def __init__(self, handler: Any, **more: Any) -> None:
        super().__init__(handler, **more)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])

    def _create_server(self) -> Awaitable[asyncio.AbstractServer]:
        return self.loop.create_server(self._factory_invoker, sock=self._listening)

    def _trigger_server(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), 60.0) as connection:
            connection.recv(1024)


class MailReceiver:
    """A mail server that keeps what it accepts; with a password it wants one, with TLS it offers STARTTLS."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, account: tuple[str, str] | None = None) -> None:
        self.received: list[tuple[list[str], EmailMessage]] = []
        self.secured: list[bool] = []
        """Of each mail, whether it was sent over TLS."""
        self.users: list[str] = []

        def login(server: SMTP, session: Session, envelope: Envelope, way: str, data: LoginPassword) -> AuthResult:
            self.users.append(data.login.decode())
            return AuthResult(success=(data.login.decode(), data.password.decode()) == account)

        more = {"authenticator": login, "auth_required": True, "auth_require_tls": tls is not None} if account else {}
        self._controller = _OnSocket(self, ready_timeout=60.0, tls_context=tls, **more)
        self._controller.start()
        self.port = self._controller.port

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.content
        assert isinstance(content, bytes)
        mail = message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.secured.append(session.ssl is not None)
        self.received.append((envelope.rcpt_tos, mail))
        return "250 OK"

    def close(self) -> None:
        self._controller.stop()
