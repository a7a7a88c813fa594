"""Between the event loop and threads: answers that are shared."""

from __future__ import annotations

import asyncio

import pytest

from gpuwise.service.live.threads import Shared
from running import await_in_thread


def test_an_answer_is_shared_by_all_who_ask_within_a_moment_and_obtained_again_after_an_error() -> None:
    asked: list[int] = []

    async def obtain() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        if len(asked) == 1:
            raise RuntimeError("not now")
        return len(asked)

    async def ask() -> None:
        shared = Shared(obtain, valid_s=3600.0)
        with pytest.raises(RuntimeError):
            await shared.get()
        assert await asyncio.gather(*(shared.get() for _ in range(10))) == [2] * 10
        assert await shared.get() == 2
        expired = Shared(obtain, valid_s=0.0)
        assert [await expired.get(), await expired.get()] == [3, 4]

    await_in_thread(ask())
