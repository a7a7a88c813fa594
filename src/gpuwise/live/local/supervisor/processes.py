"""Supervisor processes: starting them, finding them again, telling them apart from others that got their number."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from gpuwise.live.local.attempts.folders import Attempt, read_json, text, whole
from gpuwise.live.local.supervisor import main as shim


@dataclass(slots=True)
class Supervisor:
    """A supervisor, by a handle that never means another process."""

    pid: int
    handle: int
    """A pidfd; below 0 once it has been let go."""
    folder: Path

    def poke(self) -> None:
        """Tells it that there are orders for it."""
        self._signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Kills it; the kernel kills the processes it has started."""
        self._signal(signal.SIGKILL)

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        poller = select.poll()
        poller.register(self.handle, select.POLLIN)
        return bool(poller.poll(0))

    def let_go(self) -> None:
        """Lets go of the handle; if it has ended and was a child of ours, the kernel may forget it."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.handle, os.WEXITED | os.WNOHANG)
        os.close(self.handle)
        self.handle = -1

    def _signal(self, which: int) -> None:
        if self.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, which)


def spawn(attempt: Attempt) -> Supervisor:
    """Starts a supervisor for an attempt; harmless if it has one already."""
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", shim.__file__, str(attempt.folder)],
        {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)],
        setsid=True,
        setsigmask=shim.BLOCKED,
        setsigdef=(signal.SIGCHLD, signal.SIGPIPE),
    )
    return Supervisor(pid, os.pidfd_open(pid), attempt.folder)


def find(attempt: Attempt) -> Supervisor | None:
    """The living supervisor that claimed an attempt."""
    claim = read_json(attempt.folder / "claim")
    pid = whole(claim, "pid")
    if pid <= 0 or text(claim, "boot") != shim.boot_id():
        return None
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    found = Supervisor(pid, handle, attempt.folder)
    # The handle means one process from here on, whatever becomes of the number; so now see which one it is.
    if shim.start_time(pid) == whole(claim, "started", -1) and not found.is_gone:
        return found
    found.let_go()
    return None


def claimed_by(attempt: Attempt) -> int:
    """The number of the process that claimed an attempt; 0 is none."""
    return whole(read_json(attempt.folder / "claim"), "pid")


def machine_restarted(attempt: Attempt) -> bool:
    """Whether the machine was started anew since an attempt was claimed."""
    return text(read_json(attempt.folder / "claim"), "boot") not in ("", shim.boot_id())
