"""A server on loopback that says what it is told to say, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

TOKEN = "a-token"
TLS_HELLO = b"\x16"
SILENCE = b"silence"
"""Instead of an answer: nothing, and the connection stays open."""


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Scripted:
    """What is said, in order, one answer a connection; the last one again and again."""

    script: list[bytes]
    port: int = 0
    scheme: str = "http"
    asked: list[Asked] = field(default_factory=list)
    _silent: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def serve(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError):
                connection.settimeout(10)
                self._answer(tls.wrap_socket(connection, server_side=True) if tls else connection)

    def _answer(self, connection: socket.socket) -> None:
        self.asked.append(_read(connection))
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if said is SILENCE:
            self._silent.append(connection)
            return
        with connection:
            connection.sendall(said)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection in self._silent:
            connection.close()


@contextmanager
def scripted(*script: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """A server that says these things."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Scripted(list(script), listener.getsockname()[1], "https" if tls else "http")
        threading.Thread(target=server.serve, args=(listener, tls), daemon=True).start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.close()


def reply(body: object = None, status: int = 200, **headers: str) -> bytes:
    """A whole answer."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Said\r\nConnection: close\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data


def refused(status: int, message: str, **headers: str) -> bytes:
    """An answer that says what is wrong, as the server does."""
    return reply({"error": {"code": "some_code", "message": message}}, status, **headers)


def chunked(pieces: Iterable[bytes], *, whole: bool = True) -> bytes:
    """An answer in pieces, cut off before its end unless ``whole``."""
    data = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return (
        b"HTTP/1.1 200 Said\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        + data
        + (b"0\r\n\r\n" if whole else b"")
    )


def job(uid: str = "17", **changes: object) -> dict[str, Any]:
    """A job as the server tells of it."""
    return {
        "id": uid, "name": "resnet", "user": "ada", "queue": "default", "status": "running",
        "command": ["python", "train.py"], "workdir": "/home/ada", "gpus": 1, "gpu_frac": 1.0, "priority": 0,
        "submitted_at": 1.7e9, "started_at": 1.7e9 + 60, "ended_at": None, "exit_code": None, "why_ended": "",
        "attempts": 1, "failures": 0, "out_of_memory": 0, "held": "", "placement": "box:0", "duration_s": 3600.0,
        "duration_source": "declared", "gpu_memory_bytes": 0.0, "step": 30.0, "steps": 120.0, "loss": 0.25,
        "samples_per_s": 1000.0, "peak_memory_bytes": None, "gpu_s": 60.0, "preemptions": 0, "deadline_s": None,
        "after": [], "array_index": None,
        **changes,
    }  # fmt: skip


def _read(connection: socket.socket) -> Asked:
    text = b""
    while b"\r\n\r\n" not in text and text[:1] != TLS_HELLO and (piece := connection.recv(65536)):
        text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)) and (piece := connection.recv(65536)):
        body += piece
    method, path, _ = first.split(" ") if first.count(" ") == 2 else ("", "", "")
    return Asked(method, path, headers, body)
