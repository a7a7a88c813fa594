"""How often somebody may ask: a bucket of requests for each, which fills again by and by."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_KEYS = 10_000
"""So many buckets are remembered; beyond that, the one that was not used for longest is forgotten."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second in the long run, and so many at once."""

    per_s: float
    burst: float


class RateLimit:
    """A bucket for each key. Used by one thread, that of the event loop."""

    def __init__(self, rate: Rate, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Takes one request out of a bucket: 0, or how many seconds to wait for the next."""
        now, rate = self._monotonic(), self._rate
        left, at = self._buckets.pop(key, (rate.burst, now))
        left = min(rate.burst, left + (now - at) * rate.per_s)
        if len(self._buckets) >= MOST_KEYS:
            self._buckets.popitem(last=False)
        self._buckets[key] = (left - 1.0, now) if left >= 1.0 else (left, now)
        return 0.0 if left >= 1.0 else (1.0 - left) / rate.per_s
