"""Time: the controller's clock, and work that is repeated every few seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable


class Clock:
    """Seconds since the service's epoch, which never go back.

    It follows the monotonic clock from where the wall clock, or what was last written, was at the start.
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
        """Sets the clock forward if it is behind a moment that has been written."""
        self._offset = max(self._offset, at_s - self._monotonic())

    def unix(self, at_s: float) -> float:
        """The Unix time of a moment."""
        return self.epoch + at_s

    def seconds(self, unix: float) -> float:
        """The moment of a Unix time; 0 for one before the epoch."""
        return max(0.0, unix - self.epoch)


class Repeating:
    """A thread that calls a function every few seconds; if it fails, that is logged and it is called again."""

    def __init__(self, name: str, every_s: float, work: Callable[[], object]) -> None:
        self._name = name
        self._every_s = every_s
        self._work = work
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"gpuwise-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self._work()
            except Exception as error:  # nothing else depends on this time
                logging.getLogger(f"gpuwise.{self._name}").warning("not done this time: %s", error)
