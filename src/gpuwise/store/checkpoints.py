"""Moves SQLite's write-ahead log into the database beside the work, so that no commit has to wait for it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from pathlib import Path

log = logging.getLogger("gpuwise.store")
EVERY_S = 0.5
LEAST_BYTES = 4 << 20
"""A log that is smaller is left alone."""


class Checkpointer:
    """A thread that looks at the log now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuwise-checkpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            with contextlib.suppress(FileNotFoundError):
                if self._log.stat().st_size >= LEAST_BYTES:
                    self._checkpoint()

    def _checkpoint(self) -> None:
        try:
            with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            log.warning("%s: its log could not be moved into it: %s", self._path, error)
