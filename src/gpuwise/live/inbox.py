"""What other threads ask of the controller: requests with a future each, taken in one by one, answered together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import Event

Handler = Callable[[float], tuple[list[Event], Callable[[], Any]]]
"""Takes the time; gives the events that a request leads to, and what answers it once they are on disk."""


class BusyError(GpuwiseError):
    """More is asked of the controller than it can take in; ask again later."""


class ClosedError(GpuwiseError):
    """The controller is shutting down."""


@dataclass(slots=True)
class Request:
    """Something asked of the controller."""

    handle: Handler
    future: Future[Any] = field(default_factory=Future)
    answer: Callable[[], Any] | None = None


class Inbox:
    """Requests in the order they came."""

    def __init__(self, wake: Callable[[], None], limit: int = 10_000) -> None:
        self._wake = wake
        self._limit = limit
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._closed = False

    def put(self, handle: Handler) -> Future[Any]:
        """Asks for something; the future has the answer, or the error."""
        request = Request(handle)
        with self._lock:
            if self._closed:
                raise ClosedError("the controller is shutting down")
            if len(self._requests) >= self._limit:
                raise BusyError(f"{self._limit} requests wait to be taken in; try again in a second")
            self._requests.append(request)
        self._wake()
        return request.future

    def take(self, most: int = 512) -> list[Request]:
        """The next requests; those whose askers have gone away are left out."""
        with self._lock:
            taken, self._requests = self._requests[:most], self._requests[most:]
        return [request for request in taken if request.future.set_running_or_notify_cancel()]

    def __len__(self) -> int:
        return len(self._requests)

    def close(self) -> None:
        """Takes nothing more in, and tells those who wait."""
        with self._lock:
            self._closed, left, self._requests = True, self._requests, []
        for request in left:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(ClosedError("the controller is shutting down"))
