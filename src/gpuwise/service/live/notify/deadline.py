"""A limit on the whole time of a connection, from its first address on."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from itertools import islice
from types import TracebackType

from gpuwise.service.live.notify.errors import NotSentError

CONNECT_S = 5.0
"""Of one address, so that one that does not answer leaves time for the next."""
MOST_ADDRESSES = 8


class Deadline:
    """Breaks a connection that takes too long in all.

    The time-out of a socket is for each wait alone: a receiver that sends one byte now and then is never late by it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
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

    def connect(self, addresses: Iterable[str], port: int) -> socket.socket:
        """A connection to the first of some addresses that accepts one, which is watched from now on."""
        failure: Exception = NotSentError("its host has no address")
        for address in islice(addresses, MOST_ADDRESSES):
            left_s = self._ends_at - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            try:
                connection = socket.create_connection((address, port), min(CONNECT_S, left_s))
            except OSError as error:
                failure = error
                continue
            return self._watched(connection)
        raise failure

    def _watched(self, connection: socket.socket) -> socket.socket:
        try:
            connection.settimeout(self._seconds)
            self.watch(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def tls(self) -> ssl.SSLContext:
        """For connections that are watched while they shake hands, too, and after that."""

        class Watched(ssl.SSLSocket):
            def do_handshake(watched, block: bool = False) -> None:  # noqa: N805
                self.watch(watched)
                super().do_handshake(block)

        context = ssl.create_default_context()
        context.sslsocket_class = Watched
        return context

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
