"""Retention: ended jobs with their folders, ended tokens and old journal lines are deleted after some days."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections import deque
from pathlib import Path

from gpuwise.core.records import Store, StoreError
from gpuwise.live.clock import Repeating
from gpuwise.live.local.supervisor.account import FOLDER as _FOLDER

DAY_S = 86_400.0
KEEP_LINES = 200_000
"""Journal lines that are kept for `gpuwise events`, beyond those that a restart needs."""
MOST_FOLDERS = 1_000_000
"""Entries of one job that are gone through at one time, so that one that is filled meanwhile has an end."""
log = logging.getLogger("gpuwise.retention")


class Retention(Repeating):
    """Deletes ended jobs with their folders, ended tokens and old journal lines, once per hour."""

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
            with contextlib.suppress(OSError):
                self._delete_if_old(folder, now)

    def _delete_if_old(self, folder: Path, now: float) -> None:
        try:
            is_known = self._store.job(folder.name) is not None
        except StoreError as error:
            log.warning("%s is kept: %s", folder, error)
            return
        if not is_known and folder.stat().st_mtime < now - self._keep_s:
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Deletes a folder with all in it, as far as that can be done; what is left is tried again the next time.

    It may be another account's, whose processes change it meanwhile: no link is followed, nothing but folders is
    opened, and folders within folders, however deep, are moved up before they are emptied.
    """
    top, fresh = os.open(folder, _FOLDER), f".{secrets.token_hex(8)}"  # what was left may have such names
    try:
        names = deque(os.listdir(top))
        for number in range(MOST_FOLDERS):
            if not names:
                break
            with contextlib.suppress(OSError):
                names += _remove(top, names.popleft(), f"{fresh}-{number}-")
    finally:
        os.close(top)
    folder.rmdir()


def _remove(top: int, name: str, prefix: str) -> list[str]:
    """Deletes an entry of a folder; the folders that were in it are moved up, and are called this now."""
    if _unlinked(name, top):
        return []
    moved: list[str] = []
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        for each in os.listdir(inner):
            if not _unlinked(each, inner):
                os.rename(each, f"{prefix}{len(moved)}", src_dir_fd=inner, dst_dir_fd=top)
                moved.append(f"{prefix}{len(moved)}")
    except OSError:
        return moved
    finally:
        os.close(inner)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return moved


def _unlinked(name: str, folder: int) -> bool:
    """Deletes what is no folder; whether it was none."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return False
    return True
