"""Forgets what is old: ended jobs with their folders, and journal lines that nobody needs any more."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

from gpuwise.core.records import Store
from gpuwise.live.clock import Repeating

log = logging.getLogger("gpuwise.upkeep")
EVERY_S = 3600.0
KEEP_LINES = 200_000
DAY_S = 86_400.0


class Upkeep(Repeating):
    """A thread that looks once an hour."""

    def __init__(self, store: Store, jobs: Path, keep_days: float, every_s: float = EVERY_S) -> None:
        self._store = store
        self._jobs = jobs
        self._keep_s = keep_days * DAY_S
        super().__init__("upkeep", every_s, lambda: self.tidy(time.time()))

    def tidy(self, now: float) -> None:
        """Forgets what ended too long ago."""
        rows = self._store.prune(ended_before=now - self._keep_s, keep_lines=KEEP_LINES)
        if rows:
            log.info("forgot %d rows that are older than %g days", rows, self._keep_s / DAY_S)
        for folder in self._jobs.iterdir():
            if self._store.job(folder.name) is None and folder.stat().st_mtime < now - self._keep_s:
                shutil.rmtree(folder, ignore_errors=True)
