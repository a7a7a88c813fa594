"""The controller's clock: seconds since the service's epoch, which never go back."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Follows the monotonic clock from where the wall clock, or what was last written down, was at the start.

    The wall clock may be set back under a running service, or between two runs of it; times in the journal rise
    nonetheless.
    """

    def __init__(
        self,
        epoch: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch = epoch
        """Unix time of second 0."""
        self._monotonic = monotonic
        self._offset = max(wall() - epoch, 0.0) - monotonic()

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return round(self._monotonic() + self._offset, 6)

    def not_before(self, at_s: float) -> None:
        """Sets the clock forward if it is behind a moment that has been written down."""
        self._offset = max(self._offset, at_s - self._monotonic())

    def unix(self, at_s: float) -> float:
        """The Unix time of a moment."""
        return self.epoch + at_s

    def seconds(self, unix: float) -> float:
        """The moment of a Unix time; 0 for one before the epoch."""
        return max(0.0, unix - self.epoch)
