"""Whose a process is: of which run, found by its session or by its ancestors."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gpuwise.live.local.attempts.runs import Run

MOST_ANCESTORS = 64


class Owners:
    """The runs there are at one moment, by their processes."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._by_pid: dict[int, Run] = {}
        for run in runs:
            self._by_pid |= dict.fromkeys(run.pids(), run)
            if run.supervisor is not None:
                self._by_pid[run.supervisor.pid] = run
        self._found: dict[int, Run | None] = {}

    def run_of(self, pid: int) -> Run | None:
        """The run that a process belongs to; None for a stranger, and for one that has ended."""
        if pid not in self._found:
            self._found[pid] = self._by_pid.get(_session(pid)) or self._of_ancestor(pid)
        return self._found[pid]

    def _of_ancestor(self, pid: int) -> Run | None:
        """A job may make sessions of its own; whatever it starts stays below its supervisor."""
        for _ in range(MOST_ANCESTORS):
            if pid <= 1 or pid in self._by_pid:
                break
            pid = _parent(pid)
        return self._by_pid.get(pid)


def _session(pid: int) -> int:
    """The session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except (OSError, OverflowError):
        return 0


def _parent(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
