"""Brings every attempt that is not over, step by step, to what is wanted of its job."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Callable

from gpuwise.core.assignments import Intent
from gpuwise.core.commands import Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.observations import Cause, Details, Phase
from gpuwise.devices.machine import DeviceInUseError, MachineError
from gpuwise.live.clock import Clock
from gpuwise.live.local.accounts import AccountError
from gpuwise.live.local.attempts.endings import Ending
from gpuwise.live.local.attempts.folders import Attempt, AttemptState, Exit, Folders
from gpuwise.live.local.attempts.launch import LaunchSpec
from gpuwise.live.local.attempts.reports import Reports
from gpuwise.live.local.attempts.runs import LOOK_AGAIN_S, Run, RunTable
from gpuwise.live.local.attempts.starter import Starter
from gpuwise.live.local.desired import DesiredJob
from gpuwise.live.local.plan import IDLE, Actual, Goal
from gpuwise.live.local.run_control import RunControl, has_printed_too_much
from gpuwise.live.local.time_slices import Switching, TimeSlices

log = logging.getLogger(__name__)

MOST_SPAWNS = 3
"""This many supervisors in a row that end before they have claimed their attempt mean that none ever will."""
TRY_AGAIN_S = 1.0
OUTPUT_EVERY_S = 1.0


class Reconciler:
    """Compares what is wanted of jobs with their runs, and does the next thing about each."""

    def __init__(
        self,
        folders: Folders,
        table: RunTable,
        starter: Starter,
        reports: Reports,
        clock: Clock,
        launch_of: Callable[[str], LaunchSpec],
    ) -> None:
        self._folders = folders
        self._table = table
        self._starter = starter
        self._reports = reports
        self._clock = clock
        self._launch_of = launch_of
        self._time_slices = TimeSlices(table)
        self._control = RunControl(table, self._time_slices, starter.launcher, clock)
        self._todo: dict[str, None] = {}
        self._waiting: dict[str, float] = {}
        """Jobs about which nothing could be done, and when to try again if nothing happens before."""
        self._complaints: dict[str, str] = {}
        """What was last logged of jobs about which something failed."""
        self._look_at_output_s = -math.inf
        self._over: list[Attempt] = []
        """Attempts that are over, which is still to be reported."""
        self._reported: list[Attempt] = []
        """Attempts that were reported to be over; their traces are removed when that is on record."""

    def begin_again(self) -> None:
        """Begins again from what is on disk and what is wanted."""
        self._table.runs.clear()
        self._waiting, self._todo, self._over, self._reported = {}, {}, [], []
        self._complaints.clear()
        for attempt in self._folders.live():
            self._table.runs[attempt.folder] = self._starter.adopt(attempt)
            self.touch(attempt.uid)
        self.touch(*self._table.desired.jobs())

    @property
    def switching(self) -> Switching:
        """What time slices have cost."""
        return self._time_slices.switching

    def resumed(self, run: Run) -> None:
        """A run may have continued, as it was ordered to when its turn began."""
        if run.actual() is Actual.RUNNING:
            self._time_slices.resumed(run.uid, self._clock.now_s())

    def touch(self, *uids: str) -> None:
        """Something may have to be done about these jobs."""
        self._todo.update(dict.fromkeys(uids))

    def touch_waiting(self) -> None:
        """Devices may have become free."""
        self.touch(*self._waiting)

    def reported(self) -> None:
        """All that is over has been reported."""
        self._reported += self._over
        self._over = []

    def recorded(self) -> None:
        """What was reported is on record."""
        for attempt in self._reported:
            self._starter.remove_traces(attempt)
        self._reported = []

    def interrupt(self, run: Run, why: str) -> None:
        """Kills a run that has lost its device."""
        try:
            self._control.kill(run, why)
        except OSError:
            run.check_s = self._clock.now_s()  # its job has no place any more: that ends it as soon as it can be ended

    def next_check_s(self) -> float:
        """When something is to be looked at again by itself."""
        checks = [*map(self._due_s, self._table.runs.values()), *self._waiting.values()]
        return min([self._time_slices.next_s(), *checks])

    def check(self, now_s: float) -> None:
        """Looks at what is due."""
        runs = self._table.runs.values()
        if now_s >= self._look_at_output_s and runs:
            self._look_at_output_s = now_s + OUTPUT_EVERY_S
            self.touch(*(run.uid for run in runs if has_printed_too_much(run, self._folders.output(run.uid))))
        self.touch(*(run.uid for run in runs if now_s >= self._due_s(run)))
        self.touch(*(uid for uid, again_s in self._waiting.items() if now_s >= again_s))

    def _due_s(self, run: Run) -> float:
        """When a run is to be looked at; if that was tried and failed, it is not tried again before it is time."""
        if math.isfinite(self._waiting.get(run.uid, math.inf)):
            return math.inf
        return min(run.check_s, self._table.limit_s(run))

    def reconcile(self) -> None:
        """Does what can be done now about all jobs that were touched."""
        while True:
            self.touch(*self._time_slices.update(self._clock.now_s()))
            if not self._todo:
                return
            uid = next(iter(self._todo))
            del self._todo[uid]
            self._waiting.pop(uid, None)
            try:
                self._reconcile_job(uid)
            except Exception as error:  # whatever it is about one job, others must not wait for it
                self._complain(uid, error)
                self._waiting[uid] = self._clock.now_s() + TRY_AGAIN_S
            else:
                self._complaints.pop(uid, None)

    def _complain(self, uid: str, error: Exception) -> None:
        """Logs what has failed about a job, once."""
        cause = f"{type(error).__name__}: {error}"
        if self._complaints.get(uid) != cause:
            self._complaints[uid] = cause
            expected = isinstance(error, (OSError, MachineError))
            log.warning("job %s: %s; trying again", uid, error, exc_info=None if expected else error)

    def _reconcile_job(self, uid: str) -> None:
        want = self._table.desired.of(uid)
        runs = self._table.of(uid)
        for run in runs:
            self._set_time_limit(run)
            self._advance(run, want, self._table.goal(run, want) if run is runs[-1] else Goal.END)
        if not self._table.of(uid) and not self._reports.is_over(uid):
            self._begin(uid, want)

    def _set_time_limit(self, run: Run) -> None:
        """Its user may have changed it since the attempt was launched."""
        with contextlib.suppress(GpuwiseError):  # a job that has ended
            limit_s = self._launch_of(run.uid).request.time_limit_s
            run.time_limit_s = math.inf if limit_s is None else limit_s

    def _begin(self, uid: str, want: DesiredJob) -> None:
        """Nothing runs of this job; what should?"""
        if want.intent is Intent.STOP:
            self._forget(uid, want)
        elif want.intent is Intent.SUSPEND:
            self._reports.never_ran(uid, want.attempt, Phase.SUSPENDED)
        elif want.placement is None:
            self._not_started(uid, want, Phase.REFUSED, Cause.UNAVAILABLE, want.trouble)
        else:
            self._begin_there(uid, want, want.placement)

    def _begin_there(self, uid: str, want: DesiredJob, placement: Placement) -> None:
        attempt = self._folders.attempt(uid, want.attempt)
        if attempt.state() is not AttemptState.ABSENT and not self._set_aside(attempt):
            self._table.runs[attempt.folder] = self._starter.adopt(attempt)
            self.touch(uid)
        elif want.started:
            self._not_started(uid, want, Phase.FAILED, Cause.LOST, "nothing is left of it")
        elif self._was_lost(attempt):
            self._not_started(uid, want, Phase.FAILED, Cause.LOST, "its supervisor was lost while it was suspended")
        elif self._control.must_wait(uid, placement):
            self._waiting[uid] = math.inf
        elif not self._table.foreign_devices.isdisjoint(placement.devices()):
            self._not_started(uid, want, Phase.REFUSED, Cause.BUSY, "others than jobs of gpuwise compute on its GPUs")
        else:
            self._launch(attempt, want)

    def _was_lost(self, attempt: Attempt) -> bool:
        """Whether the attempt before was lost while it was suspended, and its job may not run twice."""
        ended = self._folders.before(attempt).exit()
        if not ended.lost or ended.asked:
            return False
        request = self._launch_of(attempt.uid).request
        return not (request.retries or request.requeue)

    def _set_aside(self, attempt: Attempt) -> bool:
        """Moves the files of another service's job with the same name away; False if they are this job's own."""
        if not self._starter.adopt(attempt).is_foreign:
            return False
        aside = self._folders.set_aside(attempt.uid)
        log.warning("job %s: its folder was another service's; it is kept as %s", attempt.uid, aside)
        return True

    def _launch(self, attempt: Attempt, want: DesiredJob) -> None:
        assert want.placement is not None
        spec = self._launch_of(attempt.uid)
        if spec.request.terminal and self._began_before(attempt):
            text = "it was interrupted, and an interactive job is not started again"
            self._not_started(attempt.uid, want, Phase.FAILED, Cause.LIMIT, text)
            return
        try:
            run = self._starter.write(attempt, spec, want.placement)
        except DeviceInUseError as error:
            self._not_started(attempt.uid, want, Phase.REFUSED, Cause.BUSY, str(error))
            return
        except AccountError as error:  # a name service that is not up looks like one that knows no such account
            self._not_started(attempt.uid, want, Phase.REFUSED, Cause.UNAVAILABLE, str(error))
            return
        except MachineError as error:
            self._not_started(attempt.uid, want, Phase.FAILED, Cause.ERROR, str(error))
            return
        self._table.runs[attempt.folder] = run
        self._starter.spawn(run)

    def _began_before(self, attempt: Attempt) -> bool:
        """Whether an earlier attempt has started the job's program."""
        earlier = (self._folders.attempt(attempt.uid, number) for number in range(1, attempt.number))
        return any(each.is_started for each in earlier)

    def _not_started(self, uid: str, want: DesiredJob, phase: Phase, cause: Cause, text: str) -> None:
        """An attempt could not be started and has failed, or is refused through no fault of its job."""
        self._reports.never_ran(uid, want.attempt, phase, Details(cause=cause, text=text))
        self._forget(uid, want)

    def _forget(self, uid: str, want: DesiredJob) -> None:
        """Nothing is wanted of an attempt that does not run, so nothing more is reported of it."""
        self._table.desired.remove(uid, want.attempt)
        self._reports.remove(uid, want.attempt)

    def _advance(self, run: Run, want: DesiredJob, goal: Goal) -> None:
        """Takes a run one step towards its goal."""
        state = run.state()
        if state is AttemptState.LOST:
            state = self._starter.clear_away(run)
        if state is AttemptState.ENDED:
            self._end(run, want, goal)
        elif state is AttemptState.ABSENT:
            self._await_claim(run, want, goal)
        elif state is not AttemptState.LOST:
            self._starter.find_supervisor(run)
            actual = run.actual()
            if goal is Goal.RUN and actual is not Actual.LAUNCHING and run.attempt.is_started:
                self._reports.running(run, begins=not want.started)
            goal = self._time_slices.goal(run, goal)
            if not self._control.act(run, want, goal, actual):
                self._waiting[run.uid] = math.inf
            if actual is Actual.PARKED and goal is Goal.SUSPEND:
                self._parked(run, want)
            elif actual in IDLE and goal is Goal.STAND_BY:
                self.touch_waiting()

    def _await_claim(self, run: Run, want: DesiredJob, goal: Goal) -> None:
        """No supervisor has claimed it yet: waits for the one that will, starts one, or sees to it that none can."""
        now_s = self._clock.now_s()
        if self._starter.is_coming(run) and now_s < run.deadline_s:
            if goal is Goal.END and run.actual() is not Actual.STOPPING:
                self._control.stop(run)
            run.check_s = now_s + LOOK_AGAIN_S
        elif goal is Goal.RUN and run.spawned == 0:
            self._launch(run.attempt, want)  # its launch file may be incomplete
        elif goal is Goal.RUN and run.spawned < MOST_SPAWNS:
            self._starter.spawn(run)
        else:
            self._withdraw(run, want, goal)

    def _withdraw(self, run: Run, want: DesiredJob, goal: Goal) -> None:
        """Makes sure that a supervisor which comes late starts nothing, and removes the run."""
        with contextlib.suppress(FileNotFoundError):  # where there is no folder, no supervisor starts anything
            run.attempt.order("stop")
        if run.state() is not AttemptState.ABSENT:
            self.touch(run.uid)
            return
        self._drop(run)
        if goal is Goal.RUN:
            text = f"its supervisor could not be started; does {sys.executable} work?"
            self._not_started(run.uid, want, Phase.FAILED, Cause.ERROR, text)
        self.touch_waiting()

    def _drop(self, run: Run) -> None:
        del self._table.runs[run.attempt.folder]
        self._reports.remove(run.uid, run.number)
        if run.is_foreign:  # its folder is needed for another
            self._starter.remove_traces(run.attempt)
        else:
            self._over.append(run.attempt)

    def _end(self, run: Run, want: DesiredJob, goal: Goal) -> None:
        group = self._starter.group(run.attempt)
        ending = Ending.of(run, goal, self._folders.output(run.uid), group, self._table.machine.stand_in)
        # One that has lost its device is wanted, too, until the engine knows of that.
        is_wanted = want.intent is Intent.RUN and want.attempt == run.number and not run.is_foreign
        ending.report(self._reports, run, Goal.RUN if is_wanted else goal)
        self._drop(run)
        if goal is Goal.RUN and ending.phase is Phase.MOVED and want.placement is not None:
            # It left late, as it had been asked to before it was resumed.
            self._launch(self._folders.attempt(run.uid, want.attempt), want)
        elif is_wanted:
            self._table.desired.remove(run.uid, run.number)
        self.touch_waiting()

    def _parked(self, run: Run, want: DesiredJob) -> None:
        """A run that is parked has left its devices, and keeps all that it has done.

        That is reported once. Its job may have been given another place and been suspended again before the run could
        continue there: then it is suspended once more, under the newer attempt.
        """
        if want.attempt > run.number:
            self._reports.never_ran(run.uid, want.attempt, Phase.SUSPENDED, keeps_all=True)
        self._reports.ended(run, Phase.SUSPENDED, Exit(), Details(), (None, None))
        run.reported_over = True
        self.touch_waiting()  # after a restart it may be news to the executor only, and others wait for these devices
