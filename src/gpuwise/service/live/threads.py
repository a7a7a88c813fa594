"""Between the event loop and the threads that may block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

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
