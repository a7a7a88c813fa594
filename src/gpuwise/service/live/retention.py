"""Retention: ended jobs with their folders, and old journal lines, are deleted after some days."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

from gpuwise.core.records import Store
from gpuwise.live.clock import Repeating

DAY_S = 86_400.0
KEEP_LINES = 200_000
"""Journal lines that are kept for `gpuwise events`, beyond those that a restart needs."""
log = logging.getLogger("gpuwise.retention")


class Retention(Repeating):
    """Deletes ended jobs with their folders, and old journal lines, once per hour."""

    def __init__(self, store: Store, jobs: Path, keep_days: float, every_s: float = 3600.0) -> None:
        self._store = store
        self._jobs = jobs
        self._keep_s = keep_days * DAY_S
        super().__init__("retention", every_s, lambda: self.delete_old(time.time()))

    def delete_old(self, now: float) -> None:
        """Deletes what ended too long before ``now``."""
        rows = self._store.prune(ended_before=now - self._keep_s, keep_lines=KEEP_LINES)
        if rows:
            log.info("deleted %d rows older than %g days", rows, self._keep_s / DAY_S)
        for folder in self._jobs.iterdir():
            if self._store.job(folder.name) is None and folder.stat().st_mtime < now - self._keep_s:
                shutil.rmtree(folder, ignore_errors=True)
