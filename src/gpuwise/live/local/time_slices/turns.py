"""Turns carried out: which runs stand by, who may go on, and what it costs to switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpuwise.core.assignments import Intent
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.plan import STANDS_STILL, Actual, Goal
from gpuwise.live.local.time_slices.rotation import Rotation, Sharer
from gpuwise.live.local.traffic import Traffic
from gpuwise.live.local.wanted import Wanted


class _Due(NamedTuple):
    """A job whose turn has come."""

    since_s: float
    told_s: float | None = None
    """When it was told to go on."""


@dataclass(slots=True)
class Switching:
    """What switching between jobs has cost since the executor began."""

    switches: int = 0
    """How often a job that stood still went on."""
    stopping_s: float = 0.0
    """From the end of a turn until the next job was told to go on, in all."""
    starting_s: float = 0.0
    """From then until it did, in all."""

    @property
    def lost_s(self) -> float:
        """Time in which neither of two jobs ran, in all."""
        return self.stopping_s + self.starting_s


class Turns:
    """The rotation of the runs there are."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._rotation = Rotation()
        self._due: dict[str, _Due] = {}
        self.switching = Switching()

    def next_s(self) -> float:
        """When the next turn ends."""
        return self._rotation.next_s()

    def update(self, now_s: float) -> set[str]:
        """Goes on to a moment; the jobs whose turn has come or ended."""
        runs = {run.uid: run for run in sorted(self._traffic.runs.values(), key=lambda run: run.attempt.number)}
        wishes = self._traffic.wishes
        sharers = [
            Sharer(uid, frozenset(want.placement.devices()), want.placement.milli, want.placement.quantum_s)
            for uid in wishes.jobs()
            if (want := wishes.of(uid)).placement is not None
            and want.placement.sharing is Sharing.TIME_SLICE
            and self._takes_part(uid, want, want.placement, runs.get(uid))
        ]
        resting = (*STANDS_STILL, Actual.PARKING, Actual.PAUSING)
        new = [each.uid for each in sharers if not self._rotation.knows(each.uid)]
        holding = {uid for uid in new if uid in runs and runs[uid].actual() not in resting}
        changed = self._rotation.update(now_s, sharers, holding)
        for uid in changed:
            self._due.pop(uid, None)
            if self._rotation.has_turn(uid):
                self._due[uid] = _Due(now_s)
        return changed

    def _takes_part(self, uid: str, want: Wanted, placement: Placement, run: Run | None) -> bool:
        """Whether a job could use a turn: not while it, or another one, has first to leave."""
        if want.intent is not Intent.RUN:
            return False
        if run is not None and (goal := self._traffic.goal(run, want)) is not Goal.RUN:
            may_go_on = goal is Goal.MOVE and run.actual() is Actual.PARKED and self._traffic.fits(run, placement)
            return may_go_on and not self._traffic.is_blocked(placement, uid)
        return run is not None or not self._traffic.is_blocked(placement, uid)

    def goal(self, run: Run, goal: Goal) -> Goal:
        """What is wanted of a run now: one that is to run stands by until it has the turn."""
        return Goal.STAND_BY if goal is Goal.RUN and not self._rotation.has_turn(run.uid) else goal

    def must_wait(self, uid: str, placement: Placement) -> bool:
        """Whether a job may not go on yet: it has not the turn, or whoever had it was not seen to stand still."""
        if placement.sharing is not Sharing.TIME_SLICE:
            return False
        devices = set(placement.devices())
        return not self._rotation.has_turn(uid) or any(
            run.uid != uid and not devices.isdisjoint(run.placement.devices()) and run.actual() not in STANDS_STILL
            for run in self._traffic.runs.values()
        )

    # -- what it costs --------------------------------------------------------------------------------------------

    def told(self, uid: str, now_s: float) -> None:
        """A job was told to go on."""
        if (due := self._due.get(uid)) is not None and due.told_s is None:
            self._due[uid] = due._replace(told_s=now_s)

    def went_on(self, uid: str, now_s: float) -> None:
        """A job that was told to go on does so."""
        due = self._due.get(uid)
        if due is not None and due.told_s is not None:
            del self._due[uid]
            self.switching.switches += 1
            self.switching.stopping_s += due.told_s - due.since_s
            self.switching.starting_s += now_s - due.told_s
