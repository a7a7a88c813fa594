"""What other threads ask of the controller: requests with a future each, and the errors that refuse them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import Event
from gpuwise.core.records import StoreError

Handler = Callable[[float], tuple[list[Event], Callable[[], Any]]]
"""Takes the time; returns the events that a request leads to, and what answers it once they are on disk."""


class NotPossibleError(GpuwiseError):
    """Something asked of a job, or for one, that cannot be done."""


class LimitError(GpuwiseError):
    """A user has as many jobs as they may have."""


class BusyError(GpuwiseError):
    """The controller has more requests than it can handle; ask again later."""


class ClosedError(GpuwiseError):
    """The controller is shutting down."""


@dataclass(slots=True)
class Request:
    """Something asked of the controller."""

    handle: Handler
    reads: bool = False
    """Whether it only asks a question about the state."""
    future: Future[Any] = field(default_factory=Future)
    _answer: Callable[[], Any] | None = None

    def take_in(self, now_s: float) -> list[Event] | None:
        """The events that it leads to; None if it cannot be done, which is answered at once and changes nothing."""
        try:
            events, self._answer = self.handle(now_s)
        except StoreError:
            raise
        except GpuwiseError as error:
            self.future.set_exception(error)
            return None
        return events

    def answer(self) -> None:
        """Answers it, now that what it led to is on disk."""
        try:
            assert self._answer is not None
            self.future.set_result(self._answer())
        except Exception as error:
            self.future.set_exception(error)

    def refuse(self, error: Exception) -> None:
        """Answers that the turn has failed that it was taken in by, unless it was answered before."""
        if not self.future.done():
            kind, what = type(error).__name__, "something went wrong inside the controller"
            known = isinstance(error, GpuwiseError)
            self.future.set_exception(error if known else GpuwiseError(f"{what} ({kind}); see the controller log"))


class Inbox:
    """Requests in the order of arrival."""

    def __init__(self, wake: Callable[[], None], limit: int = 10_000) -> None:
        self._wake = wake
        self._limit = limit
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._closed = False

    def put(self, handle: Handler, *, reads: bool = False) -> Future[Any]:
        """Asks for something; the future has the answer, or the error."""
        request = Request(handle, reads)
        with self._lock:
            if self._closed:
                raise ClosedError("the controller is shutting down")
            if len(self._requests) >= self._limit:
                raise BusyError(f"{self._limit} requests wait already; try again in a second")
            self._requests.append(request)
        self._wake()
        return request.future

    def take(self, most: int = 512, *, reads_too: bool = True) -> list[Request]:
        """The next requests; those that were cancelled are left out, and stay without ``reads_too`` if they read."""
        with self._lock:
            if reads_too:
                taken, self._requests = self._requests[:most], self._requests[most:]
            else:
                taken = [request for request in self._requests if not request.reads]
                self._requests = [request for request in self._requests if request.reads]
        return [request for request in taken if request.future.set_running_or_notify_cancel()]

    def __len__(self) -> int:
        return len(self._requests)

    def close(self) -> None:
        """Accepts no more requests, and refuses those that wait."""
        with self._lock:
            self._closed, left, self._requests = True, self._requests, []
        for request in left:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(ClosedError("the controller is shutting down"))
