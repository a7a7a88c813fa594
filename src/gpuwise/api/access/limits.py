"""How much a caller may use: requests per second, and streams at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from gpuwise.api.access.connection_limits import MAX_STREAMS, Droppable, OpenConnection, Shares
from gpuwise.service.live.errors import TooManyError

MAX_KEYS = 10_000
"""Buckets in memory; beyond that, the one that was not used for longest is dropped."""
STREAM_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second in the long run, and how many at once."""

    per_s: float
    burst: float


class RateLimit:
    """A token bucket per key, for the thread of the event loop.

    By hand, since `limits` has windows but no bucket with a burst and a refill (docs/decisions/0028).
    """

    def __init__(self, rate: Rate, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str) -> float:
        """Takes one request out of a bucket: 0, or the seconds to wait for the next."""
        now, rate = self._monotonic(), self._rate
        left, at = self._buckets.pop(key, (rate.burst, now))
        left = min(rate.burst, left + (now - at) * rate.per_s)
        if len(self._buckets) >= MAX_KEYS:
            self._buckets.popitem(last=False)
        self._buckets[key] = (left - 1.0, now) if left >= 1.0 else (left, now)
        return 0.0 if left >= 1.0 else (1.0 - left) / rate.per_s


class StreamLimit:
    """Limits the streams that are open, in all and per user.

    When all are taken, a user with at least two fewer than another still gets one: the oldest of the user with most is
    closed. With one fewer they would only change places, and again when the other opens its stream again.
    """

    def __init__(self, total: int = MAX_STREAMS, per_user: int = 50) -> None:
        self._total = total
        self._per_user = per_user
        self._open: Shares[Droppable] = Shares()

    def __len__(self) -> int:
        return len(self._open)

    def counted(
        self, user: str, pieces: AsyncIterator[bytes], connection: OpenConnection | None = None
    ) -> AsyncIterator[bytes]:
        """The same pieces, which count as one stream until they end."""
        own = self._open.count(user)
        has_room = len(self) < self._total or (connection is not None and own + 1 < self._open.most())
        if own >= self._per_user or not has_room:
            raise TooManyError("too many streams of events and logs are open; close some", STREAM_RETRY_S)
        return self._counted(user, pieces, connection)

    async def _counted(
        self, user: str, pieces: AsyncIterator[bytes], connection: OpenConnection | None
    ) -> AsyncIterator[bytes]:
        stream = connection or _Unconnected()
        self._open.add(user, stream)
        if connection is not None:
            connection.streams()
            if len(self) > self._total:
                self._drop_one()
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._open.discard(user, stream)

    def _drop_one(self) -> None:
        user, stream = self._open.oldest_of_most()
        self._open.discard(user, stream)
        stream.drop()


class _Unconnected:
    """A stream over a server that is not ours; it ends by itself."""

    def drop(self) -> None:
        """Does nothing."""
