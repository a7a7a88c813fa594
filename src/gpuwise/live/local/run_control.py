"""Orders to one run: what to do next about it, which limits it has exceeded, and when to look at it again."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

from gpuwise.core.commands import Placement
from gpuwise.core.units import GIB, format_bytes
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.launch import Launcher
from gpuwise.live.local.attempts.runs import LAUNCH_S, LOOK_AGAIN_S, OBEY_S, PAUSE_S, Run, RunTable
from gpuwise.live.local.desired import DesiredJob
from gpuwise.live.local.plan import Action, Actual, Facts, Goal, next_action
from gpuwise.live.local.time_slices import TimeSlices

log = logging.getLogger(__name__)

LARGEST_OUTPUT_BYTES = 1 * GIB
"""A job that prints more would fill the disk that everything else is on, the journal above all."""
UNDER_WAY = (Actual.LAUNCHING, Actual.PARKING, Actual.STOPPING)
"""What a supervisor does at once, or it is stuck."""


class RunControl:
    """Takes runs one step towards what is wanted of them."""

    def __init__(self, table: RunTable, time_slices: TimeSlices, launcher: Launcher, clock: Clock) -> None:
        self._table = table
        self._time_slices = time_slices
        self._launcher = launcher
        self._clock = clock

    def act(self, run: Run, want: DesiredJob, goal: Goal, actual: Actual) -> bool:
        """Does what is next about a run; False if its devices have to become free before."""
        now_s, done = self._clock.now_s(), True
        if now_s >= run.deadline_s and actual in UNDER_WAY:
            if run.is_stuck(now_s):
                self._give_up(run, "is stuck")
            return True
        exceeded = self._exceeded(run, now_s)
        is_suspended = actual is Actual.PARKED and goal is not Goal.STAND_BY
        if exceeded and actual is not Actual.STOPPING and not is_suspended:
            self.stop(run, exceeded)
        else:
            done = self._carry_out(next_action(goal, actual, self._facts(run, want, now_s)), run, want, now_s)
        self._look_again(run, now_s)
        return done

    def must_wait(self, uid: str, placement: Placement) -> bool:
        """Whether other jobs have to leave a place, or to pause, before a job can run there."""
        return self._table.is_blocked(placement, uid) or self._time_slices.must_wait(uid, placement)

    def stop(self, run: Run, why: str = "") -> None:
        """Ends a run, after a grace period if need be; with a reason its job has failed for that."""
        self._end(run, lambda: run.stop(self._clock.now_s(), why))

    def kill(self, run: Run, why: str = "") -> None:
        """Ends a run at once; a reason is for the record."""
        self._end(run, lambda: run.kill(self._clock.now_s(), why))

    def _end(self, run: Run, order: Callable[[], None]) -> None:
        """Orders a run to end; killing its supervisor needs no disk if the order cannot be written."""
        try:
            order()
        except OSError as error:
            if run.supervisor is None:
                raise
            self._give_up(run, f"cannot be ordered to end ({error})")

    def _give_up(self, run: Run, why: str) -> None:
        """A supervisor that does not carry out orders is killed, and with it what it has started."""
        log.error("job %s: the supervisor of attempt %s %s and is killed", run.uid, run.attempt.number, why)
        run.deadline_s = math.inf
        run.check_s = self._clock.now_s() + LOOK_AGAIN_S
        if run.supervisor is not None:
            run.supervisor.kill()

    def _carry_out(self, action: Action, run: Run, want: DesiredJob, now_s: float) -> bool:
        """False if its devices have to become free before."""
        if action is Action.RESUME and want.placement is not None:
            if self.must_wait(run.uid, want.placement):
                return False
            self._resume(run, want.attempt, want.placement, now_s)
        elif action is Action.ASK_TO_LEAVE:
            run.ask_to_leave(now_s)
        elif action is Action.PAUSE:
            run.ask_to_pause(now_s)
        elif action is Action.PARK:
            run.park(now_s)
        elif action is Action.STOP:
            self.stop(run)
        elif action is Action.KILL:
            self.kill(run)
        return True

    def _resume(self, run: Run, number: int, placement: Placement, now_s: float) -> None:
        self._time_slices.resuming(run.uid, now_s)
        if run.actual() in (Actual.PAUSING, Actual.PAUSED):
            run.unpause()
        else:
            cores = self._launcher.move(run.attempt, run.per_gpu, placement)
            run.resume(now_s, number, placement, cores)

    def _facts(self, run: Run, want: DesiredJob, now_s: float) -> Facts:
        found = Facts.SAVES if run.attempt.can_suspend else Facts.NONE
        if run.attempt.can_pause:
            found |= Facts.PAUSES
        if now_s >= run.deadline_s:
            found |= Facts.EXPIRED
        if want.placement is not None and self._table.fits(run, want.placement):
            found |= Facts.FITS
        return found

    def _exceeded(self, run: Run, now_s: float) -> str:
        """Which of its limits a run has exceeded."""
        if now_s >= self._table.limit_s(run):
            return f"time limit of {run.time_limit_s:g} s reached"
        if run.output_bytes > LARGEST_OUTPUT_BYTES:
            return f"printed more than {format_bytes(LARGEST_OUTPUT_BYTES)}; print less, or to files of its own"
        return ""

    def _look_again(self, run: Run, now_s: float) -> None:
        """Sets when to look at a run again if it sends no message."""
        actual = run.actual()
        if actual in (Actual.RUNNING, Actual.PAUSED, Actual.PARKED):
            run.check_s = run.deadline_s = math.inf
        elif actual is Actual.LEAVING:
            run.deadline_s = min(run.deadline_s, now_s + run.grace_s)
            run.check_s = run.deadline_s if run.deadline_s > now_s else now_s + LOOK_AGAIN_S
        elif actual is Actual.PAUSING:
            run.deadline_s = min(run.deadline_s, now_s + PAUSE_S)
            run.check_s = min(run.deadline_s, now_s + LOOK_AGAIN_S)
        elif actual is Actual.STOPPING:
            run.time_limit_s = math.inf
            run.check_s = run.deadline_s = min(run.deadline_s, now_s + run.grace_s + OBEY_S)
        else:
            run.deadline_s = min(run.deadline_s, now_s + LAUNCH_S)
            run.check_s = min(run.deadline_s, now_s + LOOK_AGAIN_S)
            run.poke()  # its last message may have been lost


def has_printed_too_much(run: Run, output: Path) -> bool:
    """Looks how much space what a job has printed takes: too much would fill the disk for all."""
    try:
        run.output_bytes = os.lstat(output).st_blocks * 512
    except OSError:
        run.output_bytes = 0
    return run.output_bytes > LARGEST_OUTPUT_BYTES
