"""Space on the disk that is kept free for what must be written when the disk is full: ends of jobs, cancellations."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

log = logging.getLogger("gpuwise.controller")
RESERVED_BYTES = 1 << 20
"""Enough for some hundred turns."""
LOW_BYTES = 128 << 10
"""With less than this, the disk counts as full."""
FULL = "the disk is full; free some space. Jobs can be cancelled and looked at; no new ones are accepted"


class SpaceReserve:
    """A file that takes space; it is deleted when the disk becomes full, and made again when there is room."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"
        self._lock = threading.Lock()
        self._is_there = False
        self.check()

    def check(self) -> bool:
        """Whether there is room for new jobs; gives the reserve up if there is not, and takes it again later."""
        with self._lock:
            free = self._free_bytes()
            if self._is_there and free < LOW_BYTES:
                log.warning("%s: %s", self._path.parent, FULL)
                with contextlib.suppress(FileNotFoundError):
                    self._path.unlink()
                self._is_there = False
            elif not self._is_there and free >= RESERVED_BYTES + 2 * LOW_BYTES:
                self._is_there = self._reserve()
            return self._is_there or free >= LOW_BYTES + RESERVED_BYTES

    def _free_bytes(self) -> int:
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize

    def _reserve(self) -> bool:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, RESERVED_BYTES)
            return True
        except OSError:
            self._path.unlink()
            return False
        finally:
            os.close(handle)
