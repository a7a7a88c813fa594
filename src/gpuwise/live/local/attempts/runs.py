"""Runs: attempts that are not over yet, as the executor sees and controls them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuwise.core.assignments import Intent
from gpuwise.core.commands import Placement
from gpuwise.core.job.request import GRACE_S
from gpuwise.core.job.shape import task_counts
from gpuwise.devices.machine import Machine, Where
from gpuwise.engine.journal import plain
from gpuwise.live.local.attempts.folders import LEAVE, PAUSE, RUN, Attempt, AttemptState, Exit, finite, text, whole
from gpuwise.live.local.desired import DesiredJob, DesiredState
from gpuwise.live.local.plan import Actual, Goal, goal_of
from gpuwise.live.local.watch import SupervisorHandle

LAUNCH_S = 60.0
"""A supervisor that has started nothing by then never will."""
OBEY_S = 10.0
"""A supervisor that has not carried out an order by then is stuck."""
PAUSE_S = 10.0
"""A job that has not paused between two steps by then is parked."""
LOOK_AGAIN_S = 0.25
"""When to look whether something has happened of which the message was lost."""


@dataclass(slots=True)
class Run:
    """An attempt, its supervisor, and by when it must have done what it was ordered to."""

    attempt: Attempt
    number: int
    """Of the placement it runs for; a parked attempt that is resumed runs for a later one than it was made for."""
    placement: Placement
    grace_s: float
    token: str = ""
    """What its processes have in their environment; empty if that is not known."""
    time_limit_s: float = math.inf
    per_gpu: bool = False
    supervisor: SupervisorHandle | None = None
    spawned: int = 0
    obeyed: int = 0
    """The last order that its supervisor reported as carried out."""
    deadline_s: float = math.inf
    """By when it must have done what it was ordered to."""
    check_s: float = math.inf
    """When to look at it again."""
    clearing_s: float = 0.005
    """How long the last wait was for what a lost supervisor left to be gone."""
    is_foreign: bool = False
    """Whether another service started it, so that it has nothing to do with the job of this name."""
    reported_over: bool = False
    """Whether its end has been reported already: it is parked."""
    was_claimed: bool = False
    """Whether a supervisor was seen to have it; if its claim is gone then, it was removed."""
    unwritten: dict[str, Any] = field(default_factory=dict)
    """The order to end that could not be written, so that its supervisor was killed."""
    lost: Exit | None = None
    """How it ended, if its supervisor did not live to write that."""
    overdue_s: float = 0.0
    """How long it was observed not to do what it was ordered to, after its deadline."""
    watched_s: float = -math.inf
    """When that was last looked at."""
    output_bytes: int = 0
    """What its job had printed when that was last looked at."""
    gpu_memory_bytes: float = 0.0
    """The most memory that its processes were observed to use on GPUs."""

    @classmethod
    def of(cls, attempt: Attempt) -> Run:
        """What an attempt's folder says."""
        launch = attempt.read("launch")
        number, placement = attempt.place()
        return cls(
            attempt,
            number,
            placement,
            grace_s=finite(launch, "grace_s", GRACE_S),
            token=text(launch, "token"),
            time_limit_s=finite(launch, "time_limit_s", math.inf),
            per_gpu=launch.get("per_gpu") is True,
        )

    @property
    def uid(self) -> str:
        """Its job."""
        return self.attempt.uid

    @property
    def is_resumed(self) -> bool:
        """Whether it runs for another placement than it was made for."""
        return self.number != self.attempt.number

    @property
    def is_interrupted(self) -> bool:
        """Whether it was ended since it lost its device, not for what it did."""
        orders = self.orders()
        return orders.get("want") == "kill" and bool(orders.get("why")) and orders.get("final") is not True

    @property
    def started_at(self) -> float | None:
        """Unix time from which it has run for its placement."""
        at = finite(self.attempt.read("orders"), "at") if self.is_resumed else 0.0
        return at or finite(self.attempt.read("started"), "at") or None

    def pids(self) -> list[int]:
        """Its first processes, one in all or one per GPU."""
        found = self.attempt.read("started").get("pids")
        return [pid for pid in found if type(pid) is int] if isinstance(found, list) else []

    def state(self) -> AttemptState:
        """How far it has got; one that was claimed is never absent again."""
        found = self.attempt.state()
        if found is AttemptState.ABSENT:
            return AttemptState.LOST if self.was_claimed else found
        self.was_claimed = True
        return found

    def orders(self) -> dict[str, Any]:
        """What its supervisor shall do."""
        return self.attempt.read("orders") | self.unwritten

    def actual(self) -> Actual:
        """What it does."""
        orders = self.orders()
        want, obeyed = orders.get("want"), whole(orders, "seq") <= self.obeyed
        if want in ("stop", "kill"):
            return Actual.STOPPING
        if not self.attempt.is_started or (want == "run" and not obeyed):
            return Actual.LAUNCHING
        if want == "park":
            return Actual.PARKED if obeyed else Actual.PARKING
        control = self.attempt.read("control")
        if control.get("want") == PAUSE:
            return Actual.PAUSED if self.attempt.is_paused(whole(control, "seq")) else Actual.PAUSING
        return Actual.LEAVING if control.get("want") == LEAVE else Actual.RUNNING

    def order_done(self, seq: int) -> None:
        """Its supervisor reports that it has carried out an order."""
        self.obeyed = max(self.obeyed, min(seq, whole(self.attempt.read("orders"), "seq")))

    def ask_to_leave(self, now_s: float) -> None:
        """Asks the job to save its state and end."""
        self.attempt.ask(LEAVE)
        self.deadline_s = now_s + self.grace_s

    def ask_to_pause(self, now_s: float) -> None:
        """Asks the job to pause before its next step."""
        self.attempt.ask(PAUSE)
        self.deadline_s = now_s + PAUSE_S

    def unpause(self) -> None:
        """Lets the job do its next step."""
        self.attempt.ask(RUN)
        self.deadline_s = math.inf

    def park(self, now_s: float) -> None:
        """Stops its processes, which keep their memory."""
        self._order(now_s + OBEY_S, "park")

    def resume(self, now_s: float, number: int, placement: Placement, affinity: list[list[int] | None]) -> None:
        """Lets its processes continue, for the job's newest placement."""
        if self.attempt.read("control").get("want") in (LEAVE, PAUSE):
            self.attempt.ask(RUN)
        where: dict[str, Any] = {"as": number, "placement": plain(placement), "affinity": affinity}
        if number != self.number:  # otherwise it is only its turn again
            where["at"] = time.time()
        self._order(now_s + OBEY_S, "run", **where)
        self.number, self.placement, self.reported_over = number, placement, False

    def stop(self, now_s: float, why: str = "") -> None:
        """Ends it, after a grace period if need be; with a reason its job has failed for that."""
        self._order(now_s + self.grace_s + OBEY_S, "stop", why=why, final=bool(why), grace_s=self.grace_s)

    def kill(self, now_s: float, why: str = "") -> None:
        """Ends it at once; a reason is for the record."""
        self._order(now_s + OBEY_S, "kill", why=why)

    def _order(self, deadline_s: float, want: str, **details: object) -> None:
        try:
            self.attempt.order(want, **details)
        except OSError:
            if want in ("stop", "kill") and self.supervisor is not None:
                self.unwritten = {"want": want, **details}
            raise
        self.deadline_s, self.overdue_s = deadline_s, 0.0
        self.poke()

    def is_stuck(self, now_s: float) -> bool:
        """Whether it was reminded after its deadline and still does nothing.

        Time in which it was not looked at does not count: a controller that was stalled itself does not kill
        supervisors that have long done what they were ordered to.
        """
        if now_s < self.deadline_s:
            return False
        self.overdue_s += min(now_s - self.watched_s, LOOK_AGAIN_S)
        self.watched_s, self.check_s = now_s, now_s + LOOK_AGAIN_S
        self.poke()
        return self.overdue_s > OBEY_S

    def poke(self) -> None:
        """Lets its supervisor look at its orders, if it has one."""
        if self.supervisor is not None:
            self.supervisor.poke()


@dataclass(frozen=True, slots=True)
class RunTable:
    """All runs, against what is wanted of their jobs."""

    machine: Machine
    desired: DesiredState
    runs: dict[Path, Run] = field(default_factory=dict)
    """By the folders of their attempts."""
    closed_devices: set[Where] = field(default_factory=set)
    """Devices on which nothing may be started now."""
    foreign_devices: set[Where] = field(default_factory=set)
    """Devices on which foreign processes compute."""

    def of(self, uid: str) -> list[Run]:
        """The runs of a job, oldest first: one at most, but for what a crash may have left."""
        return sorted((run for run in self.runs.values() if run.uid == uid), key=lambda run: run.attempt.number)

    def on(self, where: Where) -> list[Run]:
        """The runs on a device."""
        return [run for run in self.runs.values() if where in run.placement.devices()]

    def goal(self, run: Run, want: DesiredJob) -> Goal:
        """What is wanted of a run; one that has lost its device shall be gone."""
        if run.is_foreign or run.is_interrupted:
            return Goal.END
        return goal_of(want.intent, want.attempt, run.number)

    def is_blocked(self, placement: Placement, uid: str) -> bool:
        """Whether other jobs have to leave these devices before a job can start there."""
        devices = set(placement.devices())
        return not devices.isdisjoint(self.closed_devices) or any(
            run.uid != uid and not devices.isdisjoint(run.placement.devices()) and self._must_leave(run)
            for run in self.runs.values()
        )

    def _must_leave(self, run: Run) -> bool:
        return self.goal(run, self.desired.of(run.uid)) is not Goal.RUN and run.actual() is not Actual.PARKED

    def fits(self, run: Run, placement: Placement) -> bool:
        """Whether a parked run may continue there: only the cores of a process can be changed, its GPUs cannot."""
        if not self.machine.stand_in:
            return placement == run.placement
        if task_counts(placement.tasks) != task_counts(run.placement.tasks):
            return False
        return (placement.gpus, placement.milli) == (run.placement.gpus, run.placement.milli)

    def limit_s(self, run: Run) -> float:
        """When a job will have had GPUs for as long as it may."""
        if run.time_limit_s == math.inf:
            return math.inf
        want = self.desired.of(run.uid)
        if want.intent is not Intent.RUN or want.attempt != run.number:
            return math.inf
        return want.held_since_s + run.time_limit_s
