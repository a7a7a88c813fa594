"""Who has to make way for whom: what is wanted of each run, and whether a place is free of those who must leave it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.core.assignments import Intent
from gpuwise.core.commands import Placement
from gpuwise.core.job.shape import task_counts
from gpuwise.devices.machine import Machine, Where
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.plan import Actual, Goal, goal_of
from gpuwise.live.local.wanted import Wanted, Wishes


@dataclass(frozen=True, slots=True)
class Traffic:
    """The runs there are, against what is wanted."""

    machine: Machine
    wishes: Wishes
    runs: Mapping[Path, Run]
    closed_devices: set[Where] = field(default_factory=set)
    """Devices on which nothing may be started now."""

    def goal(self, run: Run, want: Wanted) -> Goal:
        """What is wanted of a run; one that has lost its device shall be gone."""
        if run.is_foreign or run.is_interrupted:
            return Goal.END
        return goal_of(want.intent, want.attempt, run.number)

    def is_blocked(self, placement: Placement, uid: str) -> bool:
        """Whether others have to leave these devices before a job can come to them."""
        devices = set(placement.devices())
        return not devices.isdisjoint(self.closed_devices) or any(
            run.uid != uid and not devices.isdisjoint(run.placement.devices()) and self._must_leave(run)
            for run in self.runs.values()
        )

    def _must_leave(self, run: Run) -> bool:
        return self.goal(run, self.wishes.of(run.uid)) is not Goal.RUN and run.actual() is not Actual.PARKED

    def fits(self, run: Run, placement: Placement) -> bool:
        """Whether a parked run may go on there: only cores can be changed under a process, GPUs cannot."""
        if not self.machine.stand_in:
            return placement == run.placement
        if task_counts(placement.tasks) != task_counts(run.placement.tasks):
            return False
        return (placement.gpus, placement.milli) == (run.placement.gpus, run.placement.milli)

    def limit_s(self, run: Run) -> float:
        """When a job will have held GPUs for as long as it may."""
        if run.time_limit_s == math.inf:
            return math.inf
        want = self.wishes.of(run.uid)
        if want.intent is not Intent.RUN or want.attempt != run.number:
            return math.inf
        return want.held_since_s + run.time_limit_s
