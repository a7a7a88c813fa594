"""Messages to the controller: datagrams that are sent at once or dropped, and never delay the training."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gpuwise.sdk.environment import Environment

VERSION = 1
MAX_BYTES = 4096
MAX_ADDRESS_BYTES = 100
"""Longer socket paths do not fit into an address (108 bytes on Linux) and are reached through their folder."""


class Messages:
    """Sends to the controller's socket, from rank 0 only; without a controller nothing is sent.

    The socket is looked up by its path each time, so that a restarted controller is found.
    """

    def __init__(self, environment: Environment) -> None:
        self._path = environment.socket if environment.rank == 0 else ""
        self.mute = not self._path
        self._sender = {
            "v": VERSION,
            "job": environment.job,
            "attempt": environment.attempt,
            "token": environment.token,
            "rank": environment.rank,
        }
        self._socket: socket.socket | None = None

    def send(self, kind: str, **content: object) -> None:
        """Sends a message; it is dropped if no process listens, or if the listener is behind."""
        if self.mute:
            return
        try:
            datagram = json.dumps({**self._sender, "kind": kind, **content}, allow_nan=False).encode()
            if len(datagram) <= MAX_BYTES:
                self._put(datagram)
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        """Closes the socket; the next message opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _put(self, datagram: bytes) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with _address(self._path) as address:
            self._socket.sendto(datagram, socket.MSG_DONTWAIT, address)


@contextmanager
def _address(path: str) -> Iterator[str]:
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
