"""Between the event loop and the threads that may block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from gpuwise.service.live.errors import NoAnswerError

Result = TypeVar("Result")

TIMEOUT_S = 30.0


class WorkerPool:
    """A few threads for what blocks: reading from the store and from files, estimates."""

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"gpuwise-{name}")

    async def run(
        self, function: Callable[..., Result], *given: Any, timeout_s: float = TIMEOUT_S, **named: Any
    ) -> Result:
        """Calls a function in one of the threads."""
        return await result_of(self._pool.submit(partial(function, *given, **named)), timeout_s)

    def close(self) -> None:
        """Ends the threads; work that has not started is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def result_of(future: Future[Result], timeout_s: float = TIMEOUT_S) -> Result:
    """The result of work in another thread."""
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(future)
    except TimeoutError as error:
        text = f"no answer within {timeout_s:g} s; the request may still be carried out"
        raise NoAnswerError(text) from error


class Shared(Generic[Result]):
    """An answer that is obtained once for all who ask within a moment."""

    def __init__(self, obtain: Callable[[], Awaitable[Result]], valid_s: float) -> None:
        self._obtain = obtain
        self._valid_s = valid_s
        self._answer: asyncio.Future[Result] | None = None
        self._expires_s = 0.0

    async def get(self) -> Result:
        """The answer of the one who asked first; after an error it is obtained again."""
        answer = self._answer
        if answer is None or _is_of_no_use(answer) or (answer.done() and monotonic() >= self._expires_s):
            answer = self._answer = asyncio.ensure_future(self._obtain())
            self._expires_s = monotonic() + self._valid_s
        return await asyncio.shield(answer)


def _is_of_no_use(answer: asyncio.Future[Any]) -> bool:
    if not answer.done():
        return answer.get_loop() is not asyncio.get_running_loop()
    return answer.cancelled() or answer.exception() is not None
