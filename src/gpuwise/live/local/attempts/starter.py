"""Starts supervisors, finds them again after a restart, and clears away what those that were killed have left."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwise.core.commands import Placement
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.folders import (
    FORMAT,
    Attempt,
    AttemptState,
    Exit,
    attempt_token,
    text,
    whole,
)
from gpuwise.live.local.attempts.launch import Launcher, LaunchSpec
from gpuwise.live.local.attempts.limits import processes_of
from gpuwise.live.local.attempts.runs import LAUNCH_S, LOOK_AGAIN_S, Run
from gpuwise.live.local.supervisor import supervise
from gpuwise.live.local.supervisor.files import read_json
from gpuwise.live.local.supervisor.processes import boot_id, carries, start_time, stat_of
from gpuwise.live.local.watch import SupervisorHandle, Watch

log = logging.getLogger(__name__)

LONGEST_CLEARING_S = 1.0
NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.EISDIR)
"""Errors that say that nothing can be written in an attempt's folder any more."""
ZOMBIE = b"Z"


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts supervisors and finds them again."""

    launcher: Launcher
    watch: Watch
    clock: Clock
    secret: bytes

    def write(self, attempt: Attempt, spec: LaunchSpec, placement: Placement) -> Run:
        """Makes an attempt ready to be started."""
        self.launcher.write(attempt, self._token(attempt), spec, placement)
        return Run.of(attempt)

    def adopt(self, attempt: Attempt) -> Run:
        """A run that was started before; it is foreign if that was by another service, or one of a later version."""
        run, launch = Run.of(attempt), attempt.read("launch")
        named = {text(launch, "token"), text(_claim(attempt), "token")} - {""}
        is_unknown = launch.get("v", FORMAT) != FORMAT
        if is_unknown:
            log.error(
                "job %s, attempt %d was started by another version of gpuwise (files of format %r, this is %d); it "
                "cannot be taken over and is ended. Let jobs end before going back to an earlier version",
                attempt.uid, attempt.number, launch.get("v"), FORMAT,
            )  # fmt: skip
        run.is_foreign = run.reported_over = is_unknown or (bool(named) and self._token(attempt) not in named)
        return run

    def spawn(self, run: Run) -> None:
        """Starts a supervisor for a run, which starts it unless another one has."""
        run.supervisor = spawn(run.attempt)
        run.spawned += 1
        self.watch.add(run.supervisor)
        now_s = self.clock.now_s()
        run.deadline_s, run.check_s = now_s + LAUNCH_S, now_s + LOOK_AGAIN_S

    def is_coming(self, run: Run) -> bool:
        """Whether a supervisor that was started for a run is still alive."""
        known = run.supervisor
        return known is not None and self.watch.supervisor(known.pid, run.attempt.folder) is not None

    def find_supervisor(self, run: Run) -> None:
        """Finds the supervisor that has claimed a run, and lets it look at its orders if it was not known."""
        pid, folder = whole(_claim(run.attempt), "pid"), run.attempt.folder
        if run.supervisor is not None and run.supervisor.pid == pid:
            return
        run.supervisor = self.watch.supervisor(pid, folder)
        if run.supervisor is None:
            run.supervisor = find(run.attempt)
            if run.supervisor is not None:
                self.watch.add(run.supervisor)
        run.poke()

    def clear_away(self, run: Run) -> AttemptState:
        """Its supervisor is lost: kills what may be left, and writes the end that it did not live to see."""
        attempt, orders = run.attempt, run.orders()
        if run.supervisor is not None:  # alive, it would be one without a claim
            run.supervisor.kill()
        restarted = text(_claim(attempt), "boot") not in ("", boot_id())
        token = (text(attempt.read("launch"), "token") if run.is_foreign else "") or self._token(attempt)
        if not restarted and kill_leftovers(token, self.group(attempt)):
            run.clearing_s = min(2 * run.clearing_s, LONGEST_CLEARING_S)
            run.check_s = self.clock.now_s() + run.clearing_s
            return AttemptState.LOST
        asked = orders.get("want") if orders.get("want") in ("stop", "kill") else None
        lost = {"code": 137, "signal": 9, "lost": True, "restarted": restarted, "asked": asked, "at": time.time()}
        try:
            attempt.write("exit", lost)
        except OSError as error:
            if error.errno not in NO_FOLDER:
                raise
        run.lost = Exit.parse(lost)
        return AttemptState.ENDED

    def group(self, attempt: Attempt) -> Path | None:
        """The control group of an attempt, if it may have one; what the job could write is not asked."""
        return self.launcher.cgroups.group(attempt.name) if self.launcher.cgroups is not None else None

    def remove_traces(self, attempt: Attempt) -> None:
        """Removes what is not needed once an attempt is over and known to be."""
        if self.launcher.cgroups is not None:
            self.launcher.cgroups.remove(self.launcher.cgroups.group(attempt.name))
        self.launcher.folders.close(attempt)

    def _token(self, attempt: Attempt) -> str:
        return attempt_token(self.secret, attempt.uid, attempt.number)


def spawn(attempt: Attempt) -> SupervisorHandle:
    """Starts a supervisor for an attempt; harmless if it has one already."""
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", supervise.__file__, str(attempt.folder)],
        {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)],
        setsid=True,
        setsigmask=supervise.BLOCKED,
        setsigdef=(signal.SIGCHLD, signal.SIGPIPE),
    )
    return SupervisorHandle(pid, os.pidfd_open(pid), attempt.folder)


def find(attempt: Attempt) -> SupervisorHandle | None:
    """The living supervisor that claimed an attempt."""
    claim = _claim(attempt)
    pid = whole(claim, "pid")
    if pid <= 0 or text(claim, "boot") != boot_id():
        return None
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    found = SupervisorHandle(pid, handle, attempt.folder)
    # The handle means one process from here on, whatever becomes of the number; so now see which one it is.
    if start_time(pid) == whole(claim, "started", -1) and not found.is_gone:
        return found
    found.close()
    return None


def _claim(attempt: Attempt) -> dict[str, Any]:
    return read_json(attempt.folder / "claim")


def kill_leftovers(token: str, group: Path | None) -> int:
    """Kills all that carry an attempt's token in their environment or are in its control group; how many there were."""
    members = set(processes_of(group)) if group is not None else set()
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return sum(_kill(pid, token, group) for pid in numbers if pid in members or carries(pid, token))


def _kill(pid: int, token: str, group: Path | None) -> bool:
    """Looks again once the handle means one process, then kills that."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not carries(pid, token) and (group is None or pid not in processes_of(group)):
            return False
        if stat_of(pid)[0] == ZOMBIE:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
