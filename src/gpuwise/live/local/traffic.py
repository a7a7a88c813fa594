"""Who has to make way for whom: what is wanted of each run, and whether a place is free of those who must leave it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.core.commands import Placement
from gpuwise.core.jobs import PLACED
from gpuwise.devices.machine import Machine, Where
from gpuwise.live.local.outbox import Outbox, Wanted
from gpuwise.live.local.plan import Actual, Goal, goal_of
from gpuwise.live.local.runs import Run


@dataclass(frozen=True, slots=True)
class Traffic:
    """The runs there are, against what the engine wants."""

    machine: Machine
    outbox: Outbox
    runs: Mapping[Path, Run]
    closed_devices: set[Where] = field(default_factory=set)
    """Devices on which nothing may be started now."""

    def goal(self, run: Run, want: Wanted) -> Goal:
        """What is wanted of a run; one for a placement that the engine knows to be over shall be gone."""
        if run.is_foreign:
            return Goal.END
        if want.status in PLACED and run.number <= want.over and run.actual() not in (Actual.PARKING, Actual.PARKED):
            return Goal.END
        return goal_of(want.status, want.number, run.number)

    def is_blocked(self, placement: Placement, uid: str) -> bool:
        """Whether others have to leave these devices before a job can come to them."""
        devices = set(placement.devices())
        return not devices.isdisjoint(self.closed_devices) or any(
            run.uid != uid and not devices.isdisjoint(run.placement.devices()) and self._must_leave(run)
            for run in self.runs.values()
        )

    def _must_leave(self, run: Run) -> bool:
        want = Wanted.of(self.outbox.state, run.uid)
        return self.goal(run, want) is not Goal.RUN and run.actual() is not Actual.PARKED

    def fits(self, run: Run, placement: Placement) -> bool:
        """Whether a parked run may go on there: only cores can be changed under a process, GPUs cannot."""
        if not self.machine.stand_in:
            return placement == run.placement
        return (placement.gpus, placement.milli) == (run.placement.gpus, run.placement.milli)

    def limit_s(self, run: Run) -> float:
        """When a job will have held GPUs for as long as it may."""
        if run.time_limit_s == math.inf:
            return math.inf
        want = Wanted.of(self.outbox.state, run.uid)
        if want.status not in PLACED or want.number != run.number:
            return math.inf
        jobs = self.outbox.state.jobs
        return float(jobs.placed_s.item(want.row) - jobs.held_s.item(want.row) + run.time_limit_s)
