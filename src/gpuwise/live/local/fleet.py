"""The fleet: every attempt that is not over, brought step by step to where its job is wanted."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpuwise.core.assignments import Intent
from gpuwise.core.commands import Placement
from gpuwise.core.observations import Cause, Details, Phase
from gpuwise.core.units import GIB, format_bytes
from gpuwise.devices.machine import DeviceInUseError, Machine, MachineError, Where
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.endings import Ending
from gpuwise.live.local.attempts.folders import Attempt, AttemptState, Folders
from gpuwise.live.local.attempts.outbox import Outbox
from gpuwise.live.local.attempts.outcome import Outcome
from gpuwise.live.local.attempts.runs import LAUNCH_S, LOOK_AGAIN_S, OBEY_S, PAUSE_S, Run
from gpuwise.live.local.plan import STANDS_STILL, Action, Actual, Goal, Means, next_action
from gpuwise.live.local.supervisor.launch import LaunchSpec
from gpuwise.live.local.supervisor.starter import Starter
from gpuwise.live.local.time_slices.turns import Switching, Turns
from gpuwise.live.local.traffic import Traffic
from gpuwise.live.local.wanted import Wanted, Wishes

log = logging.getLogger(__name__)

MOST_SPAWNS = 3
"""So many supervisors in a row that end before they have claimed their attempt mean that none ever will."""
TRY_AGAIN_S = 1.0
LARGEST_OUTPUT_BYTES = 1 * GIB
"""A job that prints more would fill the disk that everything else is on, the journal above all."""
OUTPUT_EVERY_S = 1.0
UNDER_WAY = (Actual.LAUNCHING, Actual.PARKING, Actual.STOPPING)
"""What a supervisor does at once, or it is stuck."""


class Fleet:
    """The runs of all jobs. A job has one at most, but for what a crash may have left."""

    def __init__(
        self,
        folders: Folders,
        machine: Machine,
        starter: Starter,
        outbox: Outbox,
        wishes: Wishes,
        clock: Clock,
        launch_of: Callable[[str], LaunchSpec],
    ) -> None:
        self._folders = folders
        self._machine = machine
        self._starter = starter
        self._outbox = outbox
        self._wishes = wishes
        self._clock = clock
        self._launch_of = launch_of
        self.runs: dict[Path, Run] = {}
        self._traffic = Traffic(machine, wishes, self.runs)
        self.taken_devices: frozenset[Where] = frozenset()
        """Devices on which others than jobs of this service compute."""
        self._turns = Turns(self._traffic)
        self._todo: dict[str, None] = {}
        self._waiting: dict[str, float] = {}
        """Jobs about which nothing could be done, and when to try again if nothing happens before."""
        self._complaints: dict[str, str] = {}
        """What was last said of jobs that could not be seen to."""
        self._look_at_output_s = -math.inf
        self._over: list[Attempt] = []
        """Attempts that are over, of which the engine has still to be told."""
        self._told: list[Attempt] = []
        """Attempts that are over, of which the engine has been told; their traces are removed when it has written."""

    # -- what it is told ------------------------------------------------------------------------------------------

    def begin_again(self) -> None:
        """Begins again from what is on disk and what is wanted."""
        self.runs.clear()
        self._waiting, self._todo, self._over, self._told = {}, {}, [], []
        self._complaints.clear()
        for attempt in self._folders.live():
            self.runs[attempt.folder] = self._starter.adopt(attempt)
            self.touch(attempt.uid)
        self.touch(*self._wishes.jobs())

    @property
    def closed_devices(self) -> set[Where]:
        """Devices on which nothing may be started now."""
        return self._traffic.closed_devices

    @property
    def switching(self) -> Switching:
        """What turns have cost."""
        return self._turns.switching

    def went_on(self, run: Run) -> None:
        """A run may have done what it was told when its turn came."""
        if run.actual() is Actual.RUNNING:
            self._turns.went_on(run.uid, self._clock.now_s())

    def touch(self, *uids: str) -> None:
        """Something may have to be done about these jobs."""
        self._todo.update(dict.fromkeys(uids))

    def touch_waiting(self) -> None:
        """Devices may have become free."""
        self.touch(*self._waiting)

    def told(self) -> None:
        """The engine is told of all that is over."""
        self._told += self._over
        self._over = []

    def forget_told(self) -> None:
        """What the engine was told is written down."""
        for attempt in self._told:
            self._starter.remove_traces(attempt)
        self._told = []

    def interrupt(self, run: Run, why: str) -> None:
        """Kills a run that has lost its device."""
        now_s = self._clock.now_s()
        try:
            self._end_it(run, lambda: run.kill(now_s, why))
        except OSError:
            run.check_s = now_s  # its job has no place any more, and that ends it as soon as it can be ended

    # -- time -----------------------------------------------------------------------------------------------------

    def next_check_s(self) -> float:
        """When something is to be looked at again by itself."""
        checks = [*map(self._due_s, self.runs.values()), *self._waiting.values()]
        return min([self._turns.next_s(), *checks])

    def check(self, now_s: float) -> None:
        """Looks at what is due."""
        if now_s >= self._look_at_output_s and self.runs:
            self._look_at_output_s = now_s + OUTPUT_EVERY_S
            self._look_at_output()
        self.touch(*(run.uid for run in self.runs.values() if now_s >= self._due_s(run)))
        self.touch(*(uid for uid, again_s in self._waiting.items() if now_s >= again_s))

    def _due_s(self, run: Run) -> float:
        """When a run is to be looked at; if that was tried and failed, it is not tried again before it is time."""
        if math.isfinite(self._waiting.get(run.uid, math.inf)):
            return math.inf
        return min(run.check_s, self._traffic.limit_s(run))

    def _look_at_output(self) -> None:
        """Finds the jobs that have printed more than they may: they would fill the disk for all."""
        for run in self.runs.values():
            run.output_bytes = printed_bytes(self._folders.output(run.uid))
            if run.output_bytes > LARGEST_OUTPUT_BYTES:
                self.touch(run.uid)

    # -- one step after the other ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Does what can be done now about all jobs that were touched."""
        while True:
            self.touch(*self._turns.update(self._clock.now_s()))
            if not self._todo:
                return
            uid = next(iter(self._todo))
            del self._todo[uid]
            self._waiting.pop(uid, None)
            try:
                self._reconcile(uid)
            except Exception as error:  # whatever it is about one job, the others go on
                self._complain(uid, error)
                self._waiting[uid] = self._clock.now_s() + TRY_AGAIN_S
            else:
                self._complaints.pop(uid, None)

    def _complain(self, uid: str, error: Exception) -> None:
        """Says what keeps a job from being seen to, once."""
        cause = f"{type(error).__name__}: {error}"
        if self._complaints.get(uid) != cause:
            self._complaints[uid] = cause
            foreseen = isinstance(error, (OSError, MachineError))
            log.warning("job %s: %s; trying again", uid, error, exc_info=None if foreseen else error)

    def _reconcile(self, uid: str) -> None:
        want = self._wishes.of(uid)
        runs = self._of(uid)
        for run in runs:
            self._advance(run, want, self._traffic.goal(run, want) if run is runs[-1] else Goal.END)
        if not self._of(uid) and not self._outbox.is_over(uid):
            self._begin(uid, want)

    def _of(self, uid: str) -> list[Run]:
        return sorted((run for run in self.runs.values() if run.uid == uid), key=lambda run: run.attempt.number)

    def _begin(self, uid: str, want: Wanted) -> None:
        """Nothing runs of this job; what should?"""
        if want.intent is Intent.STOP:
            self._forget(uid, want)
        elif want.intent is Intent.SUSPEND:
            self._outbox.never_ran(uid, want.attempt, Phase.SUSPENDED)
        elif want.placement is None:
            self._refuse(uid, want, Cause.UNAVAILABLE, want.trouble)
        else:
            self._begin_there(uid, want, want.placement)

    def _begin_there(self, uid: str, want: Wanted, placement: Placement) -> None:
        attempt = self._folders.attempt(uid, want.attempt)
        if attempt.state() is not AttemptState.ABSENT and not self._set_aside(attempt):
            self.runs[attempt.folder] = self._starter.adopt(attempt)
            self.touch(uid)
        elif want.started:
            self._fail(uid, want, "nothing is left of it", Cause.LOST)
        elif self._must_wait(uid, placement):
            self._waiting[uid] = math.inf
        elif not self.taken_devices.isdisjoint(placement.devices()):
            self._refuse(uid, want, Cause.BUSY, "others than jobs of gpuwise compute on its GPUs")
        else:
            self._launch(attempt, want)

    def _must_wait(self, uid: str, placement: Placement) -> bool:
        return self._traffic.is_blocked(placement, uid) or self._turns.must_wait(uid, placement)

    def _set_aside(self, attempt: Attempt) -> bool:
        """Moves the files of an earlier service's job with the same name away; False if they are this job's own."""
        if not self._starter.adopt(attempt).is_foreign:
            return False
        aside = self._folders.set_aside(attempt.uid)
        log.warning("job %s: its folder was another service's; it is kept as %s", attempt.uid, aside)
        return True

    def _launch(self, attempt: Attempt, want: Wanted) -> None:
        assert want.placement is not None
        try:
            run = self._starter.write(attempt, self._launch_of(attempt.uid), want.placement)
        except DeviceInUseError as error:
            self._refuse(attempt.uid, want, Cause.BUSY, str(error))
            return
        except MachineError as error:
            self._fail(attempt.uid, want, str(error))
            return
        self.runs[attempt.folder] = run
        self._starter.spawn(run)

    def _fail(self, uid: str, want: Wanted, text: str, cause: Cause = Cause.ERROR) -> None:
        """An attempt could not be started, or nothing is left of it."""
        self._outbox.never_ran(uid, want.attempt, Phase.FAILED, Details(cause=cause, text=text))
        self._forget(uid, want)

    def _refuse(self, uid: str, want: Wanted, cause: Cause, text: str) -> None:
        """An attempt cannot be started here now, through no fault of its job."""
        self._outbox.never_ran(uid, want.attempt, Phase.REFUSED, Details(cause=cause, text=text))
        self._forget(uid, want)

    def _forget(self, uid: str, want: Wanted) -> None:
        """Nothing is wanted of an attempt that does not run, so nothing more is reported of it."""
        self._wishes.forget(uid, want.attempt)
        self._outbox.forget(uid, want.attempt)

    def _advance(self, run: Run, want: Wanted, goal: Goal) -> None:
        """Takes a run one step towards its goal."""
        state = run.state()
        if state is AttemptState.LOST:
            state = self._starter.clear_away(run)
        if state is AttemptState.ENDED:
            self._end(run, want, goal)
        elif state is AttemptState.ABSENT:
            self._see_to_claim(run, want, goal)
        elif state is not AttemptState.LOST:
            self._starter.find_supervisor(run)
            actual = run.actual()
            if goal is Goal.RUN and actual is not Actual.LAUNCHING and run.is_started:
                self._outbox.running(run, begins=not want.started)
            self._act(run, want, self._turns.goal(run, goal), actual)

    def _act(self, run: Run, want: Wanted, goal: Goal, actual: Actual) -> None:
        now_s = self._clock.now_s()
        if now_s >= run.deadline_s and actual in UNDER_WAY:
            if run.is_stuck(now_s):
                self._give_up(run, "is stuck")
            return
        exceeded = self._exceeded(run, now_s)
        is_suspended = actual is Actual.PARKED and goal is not Goal.STAND_BY
        if exceeded and actual is not Actual.STOPPING and not is_suspended:
            self._end_it(run, lambda: run.stop(now_s, exceeded))
        else:
            self._carry_out(next_action(goal, actual, self._means(run, want, now_s)), run, want, now_s)
        if actual is Actual.PARKED and goal is Goal.AWAY:
            self._parked(run, want)
        elif actual in STANDS_STILL and goal is Goal.STAND_BY:
            self.touch_waiting()
        self._look_again(run, now_s)

    def _exceeded(self, run: Run, now_s: float) -> str:
        """Which of its limits a run has exceeded."""
        if now_s >= self._traffic.limit_s(run):
            return f"time limit of {run.time_limit_s:g} s reached"
        if run.output_bytes > LARGEST_OUTPUT_BYTES:
            return f"printed more than {format_bytes(LARGEST_OUTPUT_BYTES)}; print less, or to files of its own"
        return ""

    def _end_it(self, run: Run, order: Callable[[], None]) -> None:
        """Orders a run to end; killing its supervisor needs no disk if the order cannot be written."""
        try:
            order()
        except OSError as error:
            if run.supervisor is None:
                raise
            self._give_up(run, f"cannot be told to end ({error})")

    def _carry_out(self, action: Action, run: Run, want: Wanted, now_s: float) -> None:
        if action is Action.GO_ON and want.placement is not None:
            if self._must_wait(run.uid, want.placement):
                self._waiting[run.uid] = math.inf
            else:
                self._go_on(run, want.attempt, want.placement, now_s)
        elif action is Action.ASK:
            run.ask_to_leave(now_s)
        elif action is Action.PAUSE:
            run.ask_to_pause(now_s)
        elif action is Action.PARK:
            run.park(now_s)
        elif action is Action.STOP:
            self._end_it(run, lambda: run.stop(now_s))
        elif action is Action.KILL:
            self._end_it(run, lambda: run.kill(now_s))

    def _go_on(self, run: Run, number: int, placement: Placement, now_s: float) -> None:
        self._turns.told(run.uid, now_s)
        if run.actual() in (Actual.PAUSING, Actual.PAUSED):
            run.unpause()
        else:
            cores = self._starter.launcher.move(run.attempt, run.per_gpu, placement)
            run.go_on(now_s, number, placement, cores)

    def _look_again(self, run: Run, now_s: float) -> None:
        """Sets when to look at a run again if nothing is heard of it."""
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
            run.poke()  # what it said last time may have been lost

    def _means(self, run: Run, want: Wanted, now_s: float) -> Means:
        found = Means.SAVES if run.attempt.can_suspend else Means.NONE
        if run.attempt.can_pause:
            found |= Means.PAUSES
        if now_s >= run.deadline_s:
            found |= Means.EXPIRED
        if want.placement is not None and self._traffic.fits(run, want.placement):
            found |= Means.FITS
        return found

    def _see_to_claim(self, run: Run, want: Wanted, goal: Goal) -> None:
        """No supervisor has claimed it yet: wait for the one that will, start one, or see to it that none can."""
        now_s = self._clock.now_s()
        if self._starter.is_coming(run) and now_s < run.deadline_s:
            if goal is Goal.END and run.actual() is not Actual.STOPPING:
                self._end_it(run, lambda: run.stop(now_s))
            run.check_s = now_s + LOOK_AGAIN_S
        elif goal is Goal.RUN and run.spawned == 0:
            self._launch(run.attempt, want)  # we cannot know how far whoever began it has come
        elif goal is Goal.RUN and run.spawned < MOST_SPAWNS:
            self._starter.spawn(run)
        else:
            self._withdraw(run, want, goal)

    def _withdraw(self, run: Run, want: Wanted, goal: Goal) -> None:
        """Makes sure that a supervisor which comes late starts nothing, and forgets the run."""
        with contextlib.suppress(FileNotFoundError):  # where there is no folder, no supervisor starts anything
            run.attempt.order("stop")
        if run.state() is not AttemptState.ABSENT:
            self.touch(run.uid)
            return
        self._drop(run)
        if goal is Goal.RUN:
            self._fail(run.uid, want, f"its supervisor could not be started; does {sys.executable} work?")
        self.touch_waiting()

    # -- ends -----------------------------------------------------------------------------------------------------

    def _drop(self, run: Run) -> None:
        del self.runs[run.attempt.folder]
        self._outbox.forget(run.uid, run.number)
        if run.is_foreign:  # its folder is needed for another
            self._starter.remove_traces(run.attempt)
        else:
            self._over.append(run.attempt)

    def _end(self, run: Run, want: Wanted, goal: Goal) -> None:
        group = self._starter.group(run.attempt)
        ending = Ending.of(run, goal, self._folders.output(run.uid), group, self._machine.stand_in)
        # Also one that has lost its device is wanted, as long as nobody who wants it knows of that.
        is_wanted = want.intent is Intent.RUN and want.attempt == run.number and not run.is_foreign
        ending.tell(self._outbox, run, Goal.RUN if is_wanted else goal)
        self._drop(run)
        if goal is Goal.RUN and ending.outcome is Outcome.MOVED and want.placement is not None:
            # It left late, as it had been asked to before it was resumed.
            self._launch(self._folders.attempt(run.uid, want.attempt), want)
        elif is_wanted:
            self._wishes.forget(run.uid, run.number)
        self.touch_waiting()

    def _parked(self, run: Run, want: Wanted) -> None:
        """A run that was stopped where it is has left its devices.

        Its end is told once. Its job may have been given another place and had it taken back before the run could go on
        there: then it is suspended once more, under the newer attempt.
        """
        if want.attempt > run.number:
            self._outbox.never_ran(run.uid, want.attempt, Phase.SUSPENDED, keeps_all=True)
        Ending.parked(self._outbox, run)
        run.told_over = True
        self.touch_waiting()  # after a restart it may be news to us only, and others wait for these devices

    def _give_up(self, run: Run, why: str) -> None:
        """A supervisor that does not do what it is told is killed, and with it what it has started."""
        log.error("job %s: the supervisor of attempt %s %s and is killed", run.uid, run.attempt.number, why)
        run.deadline_s = math.inf
        run.check_s = self._clock.now_s() + LOOK_AGAIN_S
        if run.supervisor is not None:
            run.supervisor.kill()


def printed_bytes(output: Path) -> int:
    """The space that what a job has printed takes."""
    try:
        return os.lstat(output).st_blocks * 512
    except OSError:
        return 0
