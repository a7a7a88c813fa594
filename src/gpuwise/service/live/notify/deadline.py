"""A limit on the whole time of a connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Deadline:
    """Breaks a connection that takes too long in all.

    The time-out of a socket is for each wait alone: a receiver that sends one byte now and then is never late by it.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_over = False
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            self._socket = None
            if self.is_over:  # an answer that was cut off may look complete
                raise TimeoutError from error

    def watch(self, connection: socket.socket) -> None:
        """The socket to shut down when the time is over."""
        with self._lock:
            self._socket = connection
            if self.is_over:
                raise TimeoutError

    def _expire(self) -> None:
        with self._lock:
            self.is_over = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # of TLS, too, without its closing words
