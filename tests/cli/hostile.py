"""A hostile client: opens connections, leaves them open, and says when asked how many the server has left open.

``hostile.py HOST PORT COUNT [TOKEN ...]``: half-sent requests; with tokens, event streams in equal parts.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence

PATIENCE_S = 60.0


def open_one(address: tuple[str, int], token: str | None) -> socket.socket | None:
    """A connection with half of a request on it, or with a stream that has begun or was refused."""
    connection = socket.create_connection(address, PATIENCE_S)
    request = f"GET /v1/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
    try:
        if token is None:
            connection.sendall(request.encode())
            return connection
        connection.sendall(f"{request}Authorization: Bearer {token}\r\n\r\n".encode())
        begun = connection.recv(65536)
    except OSError:
        return connection
    return connection if begun.startswith(b"HTTP/1.1 200 ") else None


def is_open(connection: socket.socket) -> bool:
    """Whether the server has not closed a connection."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def main(host: str, port: str, count: str, *tokens: str) -> None:
    """Opens them, says so, and answers each line with the number that is left for each token."""
    keys: Sequence[str | None] = tokens or (None,)
    each = int(count) // len(keys)
    held = {key: [open_one((host, int(port)), key) for _ in range(each)] for key in keys}
    print("all are open", flush=True)
    for _ in sys.stdin:
        left = [sum(is_open(connection) for connection in held[key] if connection is not None) for key in keys]
        print(json.dumps(left), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
