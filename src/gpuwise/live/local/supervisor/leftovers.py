"""Processes that a killed supervisor leaves: found by what only they carry, never by their number alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from gpuwise.live.local.supervisor.cgroups import processes_of
from gpuwise.live.local.supervisor.main import stat_of

ZOMBIE = b"Z"


def kill_leftovers(token: str, group: Path | None) -> int:
    """Kills all that carry an attempt's token in their environment or are in its control group; how many there were."""
    members = set(processes_of(group)) if group is not None else set()
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return sum(_kill(pid, token, group) for pid in numbers if pid in members or _carries(pid, token))


def _kill(pid: int, token: str, group: Path | None) -> bool:
    """Looks again once the handle means one process, then kills that."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(pid, token) and (group is None or pid not in processes_of(group)):
            return False
        if stat_of(pid)[0] == ZOMBIE:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _carries(pid: int, token: str) -> bool:
    """Whether a process was started with a token; one that has ended, or is not ours, was not."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"GPUWISE_TOKEN={token}".encode() in file.read().split(b"\0")
    except OSError:
        return False
