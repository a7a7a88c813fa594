"""Between the event loop and the threads that may block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from gpuwise.service.live.refusals import NoAnswerError

Result = TypeVar("Result")

PATIENCE_S = 30.0
"""How long an answer may take."""


class Readers:
    """A few threads for what blocks: reading from the store and from files, looking ahead."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"gpuwise-{name}")

    async def run(
        self, function: Callable[..., Result], *given: Any, patience_s: float = PATIENCE_S, **named: Any
    ) -> Result:
        """Calls a function in one of the threads."""
        return await answer(self._pool.submit(partial(function, *given, **named)), patience_s)

    def close(self) -> None:
        """Lets the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def answer(future: Future[Result], patience_s: float = PATIENCE_S) -> Result:
    """What another thread answers."""
    try:
        async with asyncio.timeout(patience_s):
            return await asyncio.wrap_future(future)
    except TimeoutError as error:
        text = f"there was no answer for {patience_s:g} s; what was asked for may still happen"
        raise NoAnswerError(text) from error
