"""Answers without end: how many of them there may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from gpuwise.service.live.refusals import TooManyError

RETRY_S = 5.0


class Streams:
    """Counts the streams that are open, in all and of each token."""

    def __init__(self, most: int = 500, most_of_one: int = 50) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._of: Counter[str] = Counter()

    def open(self, token: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Hands pieces on and counts as one stream until they end."""
        if self._of.total() >= self._most or self._of[token] >= self._most_of_one:
            raise TooManyError("too many streams of events and logs are open; close some", RETRY_S)
        return self._counted(token, pieces)

    async def _counted(self, token: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._of[token] += 1
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._of[token] -= 1
            if not self._of[token]:
                del self._of[token]
