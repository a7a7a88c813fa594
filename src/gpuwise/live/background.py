"""Something that is done again and again in a thread of its own, whatever becomes of one time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable


class Repeating:
    """A thread that calls a function every so many seconds; one that fails is told in the log and called again."""

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
