"""Getting runs going: their folders, their supervisors, and those that were lost."""

from __future__ import annotations

import errno
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from gpuwise.core.commands import Placement
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.folders import FORMAT, Attempt, AttemptState, Exit, attempt_token, read_json, text
from gpuwise.live.local.attempts.runs import LAUNCH_S, LOOK_AGAIN_S, Run
from gpuwise.live.local.supervisor import processes as supervisors
from gpuwise.live.local.supervisor.launch import Launcher, LaunchSpec
from gpuwise.live.local.supervisor.leftovers import kill_leftovers
from gpuwise.live.local.watch import Watch

log = logging.getLogger(__name__)

LONGEST_CLEARING_S = 1.0
NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.EISDIR)
"""Errors that say that an attempt's folder is not one any more in which something could be written."""


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
        """A run that somebody has begun; it is foreign if that was another service, or one of a later version."""
        run = Run.of(attempt)
        named = {text(attempt.read("launch"), "token"), text(read_json(attempt.folder / "claim"), "token")} - {""}
        is_unknown = attempt.format != FORMAT
        if is_unknown:
            log.error(
                "job %s, attempt %d was started by another version of gpuwise (files of format %r, this is %d); it "
                "cannot be taken over and is ended. Let jobs end before going back to an earlier version",
                attempt.uid, attempt.number, attempt.format, FORMAT,
            )  # fmt: skip
        run.is_foreign = run.told_over = is_unknown or (bool(named) and self._token(attempt) not in named)
        return run

    def spawn(self, run: Run) -> None:
        """Starts a supervisor for a run, which starts it unless another one has."""
        run.supervisor = supervisors.spawn(run.attempt)
        run.spawned += 1
        self.watch.add(run.supervisor)
        now_s = self.clock.now_s()
        run.deadline_s, run.check_s = now_s + LAUNCH_S, now_s + LOOK_AGAIN_S

    def is_coming(self, run: Run) -> bool:
        """Whether a supervisor that was started for a run is still alive."""
        known = run.supervisor
        return known is not None and self.watch.supervisor(known.pid, run.attempt.folder) is not None

    def find_supervisor(self, run: Run) -> None:
        """Finds the supervisor that has claimed a run, and has it look at its orders if we did not know it."""
        pid, folder = supervisors.claimed_by(run.attempt), run.attempt.folder
        if run.supervisor is not None and run.supervisor.pid == pid:
            return
        run.supervisor = self.watch.supervisor(pid, folder)
        if run.supervisor is None:
            run.supervisor = supervisors.find(run.attempt)
            if run.supervisor is not None:
                self.watch.add(run.supervisor)
        run.poke()

    def clear_away(self, run: Run) -> AttemptState:
        """Its supervisor is lost: kills what may be left, and writes down the end that it did not live to see."""
        attempt, orders = run.attempt, run.orders()
        if run.supervisor is not None:  # alive, it would be one without a claim
            run.supervisor.kill()
        restarted = supervisors.machine_restarted(attempt)
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
