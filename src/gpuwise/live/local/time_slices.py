"""Jobs that take turns on the same devices: whose turn it is, which runs stand by, and what it costs to switch.

Stride scheduling: a job that has run for t seconds with a share s has a *pass* of t / s, and at the end of each turn
those with the smallest pass have the next one. Over many turns each gets time in proportion to its share, and a job
that has the next turn, too, is not interrupted. Jobs whose devices overlap, directly or through others, are one group
with one order: the job that is first in it gets all its devices, so that a gang has its turn on every one of them at
the same time, and those after it fill the devices that are left.

Waldspurger and Weihl 1995, *Stride scheduling: deterministic proportional-share resource management*.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwise.core.assignments import Intent
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.devices.machine import Where
from gpuwise.live.local.attempts.runs import Run, RunTable
from gpuwise.live.local.desired import DesiredJob
from gpuwise.live.local.plan import IDLE, Actual, Goal

DEFAULT_QUANTUM_S = 60.0
"""The length of a turn where no job of a group asks for one; Gandiva (OSDI 2018) switches about once a minute."""
SHORTEST_QUANTUM_S = 0.1
"""Turns are never shorter: switching would take most of them."""


@dataclass(frozen=True, slots=True)
class Sharer:
    """A job that shares its devices by time slices."""

    uid: str
    devices: frozenset[Where]
    milli: int
    """Its share of the time in thousandths."""
    quantum_s: float = 0.0
    """The length of turn it asks for; 0 is any."""


@dataclass(slots=True)
class _Account:
    """What a job has had so far."""

    passed_s: float = 0.0
    """Seconds it had the turn, over its share; counted from the smallest of its group."""
    last_s: float = -math.inf
    """When it last had the turn; those that tie go by it."""


class Rotation:
    """The order of turns of all groups; it has no clock of its own."""

    def __init__(self) -> None:
        self._sharers: dict[str, Sharer] = {}
        self._accounts: dict[str, _Account] = {}
        self._groups: list[list[Sharer]] = []
        self._in_turn: dict[str, float] = {}
        """The jobs whose turn it is, and until when."""
        self._charged_s = 0.0

    def has_turn(self, uid: str) -> bool:
        """Whether a job may run now; one that takes no turns always may."""
        return uid not in self._sharers or uid in self._in_turn

    def knows(self, uid: str) -> bool:
        """Whether a job takes turns."""
        return uid in self._sharers

    def next_s(self) -> float:
        """When the next turn ends."""
        return min(self._in_turn.values(), default=math.inf)

    def update(self, now_s: float, sharers: Sequence[Sharer], running: Collection[str] = ()) -> set[str]:
        """Advances to a moment, with the jobs that take turns from then on; the jobs whose turn has begun or ended.

        ``running`` are those that run already: one of them that is new, as all are after a restart, has the first turn.
        Otherwise a newcomer gets one at once, so that it is soon known whether it runs at all.
        """
        before = set(self._in_turn)
        self._charge(now_s)
        arrived = self._admit({each.uid: each for each in sharers}, now_s, running)
        for group in self._groups:
            self._take_turns(group, now_s, not arrived.isdisjoint(each.uid for each in group))
        return before ^ set(self._in_turn)

    def _charge(self, now_s: float) -> None:
        """Charges the time since the last update to the jobs that had the turn."""
        for uid in self._in_turn:
            account = self._accounts[uid]
            account.passed_s += (now_s - self._charged_s) * 1000 / self._sharers[uid].milli
            account.last_s = now_s
        self._charged_s = now_s

    def _admit(self, sharers: dict[str, Sharer], now_s: float, running: Collection[str]) -> set[str]:
        """Notes which jobs take turns; the newcomers that are to have one at once."""
        if sharers == self._sharers:
            return set()
        self._rebase()
        arrived = set(sharers.keys() - self._sharers.keys())
        self._sharers = sharers
        self._accounts = {uid: self._accounts.get(uid) or _Account() for uid in sharers}
        self._groups = connected(list(sharers.values()))
        self._in_turn = {uid: until_s for uid, until_s in self._in_turn.items() if uid in sharers}
        for group in self._groups:
            kept = [each.uid for each in group if each.uid in arrived and each.uid in running]
            for uid in kept:
                if self._has_room(sharers[uid]):
                    self._in_turn[uid] = now_s + quantum_of(group)
            if kept:
                arrived -= {each.uid for each in group}
        return arrived

    def _rebase(self) -> None:
        """Counts from the smallest pass of each group, so that groups can be joined and newcomers begin with 0.

        Otherwise a job that was alone for hours would have to wait for hours when another one joins it.
        """
        for group in self._groups:
            least_s = min(self._accounts[each.uid].passed_s for each in group)
            for each in group:
                self._accounts[each.uid].passed_s -= least_s

    def _take_turns(self, group: Sequence[Sharer], now_s: float, arrived: bool) -> None:
        """Begins the next turn of a group if it is time to; devices that a job has left are filled at once."""
        if len(group) == 1:
            self._in_turn[group[0].uid] = math.inf
            return
        until_s = min((self._in_turn.get(each.uid, math.inf) for each in group), default=math.inf)
        if arrived or until_s == math.inf or now_s >= until_s:
            until_s = now_s + quantum_of(group)
            for each in group:
                self._in_turn.pop(each.uid, None)
        for each in sorted(group, key=self._order):
            if each.uid in self._in_turn or self._has_room(each):
                self._in_turn[each.uid] = until_s

    def _order(self, sharer: Sharer) -> tuple[float, float]:
        account = self._accounts[sharer.uid]
        return account.passed_s, account.last_s

    def _has_room(self, sharer: Sharer) -> bool:
        return all(sharer.devices.isdisjoint(self._sharers[uid].devices) for uid in self._in_turn)


def quantum_of(group: Sequence[Sharer]) -> float:
    """The length of a group's turns: the shortest that is asked for."""
    asked = min((each.quantum_s for each in group if each.quantum_s > 0), default=DEFAULT_QUANTUM_S)
    return max(asked, SHORTEST_QUANTUM_S)


def connected(sharers: Sequence[Sharer]) -> list[list[Sharer]]:
    """The sharers in groups whose devices overlap, directly or through others."""
    groups: list[tuple[set[Where], list[Sharer]]] = []
    for each in sharers:
        devices, members = set(each.devices), [each]
        apart = []
        for group in groups:
            if group[0].isdisjoint(each.devices):
                apart.append(group)
            else:
                devices |= group[0]
                members = group[1] + members
        groups = [*apart, (devices, members)]
    return [members for _, members in groups]


class _Due(NamedTuple):
    """A job whose turn has begun."""

    since_s: float
    ordered_s: float | None = None
    """When it was ordered to continue."""


@dataclass(slots=True)
class Switching:
    """What switching between jobs has cost since the executor started."""

    switches: int = 0
    """How often a job that was paused or parked continued."""
    stopping_s: float = 0.0
    """From the end of a turn until the next job was ordered to continue, in all."""
    starting_s: float = 0.0
    """From then until it did, in all."""

    @property
    def lost_s(self) -> float:
        """Time in which neither of two jobs ran, in all."""
        return self.stopping_s + self.starting_s


class TimeSlices:
    """The turns of the runs there are."""

    def __init__(self, table: RunTable) -> None:
        self._table = table
        self._rotation = Rotation()
        self._due: dict[str, _Due] = {}
        self.switching = Switching()

    def next_s(self) -> float:
        """When the next turn ends."""
        return self._rotation.next_s()

    def update(self, now_s: float) -> set[str]:
        """Advances to a moment; the jobs whose turn has begun or ended."""
        runs = {run.uid: run for run in sorted(self._table.runs.values(), key=lambda run: run.attempt.number)}
        desired = self._table.desired
        sharers = [
            Sharer(uid, frozenset(want.placement.devices()), want.placement.milli, want.placement.quantum_s)
            for uid in desired.jobs()
            if (want := desired.of(uid)).placement is not None
            and want.placement.sharing is Sharing.TIME_SLICE
            and self._takes_part(uid, want, want.placement, runs.get(uid))
        ]
        idle = (*IDLE, Actual.PARKING, Actual.PAUSING)
        new = [each.uid for each in sharers if not self._rotation.knows(each.uid)]
        running = {uid for uid in new if uid in runs and runs[uid].actual() not in idle}
        changed = self._rotation.update(now_s, sharers, running)
        for uid in changed:
            self._due.pop(uid, None)
            if self._rotation.has_turn(uid):
                self._due[uid] = _Due(now_s)
        return changed

    def _takes_part(self, uid: str, want: DesiredJob, placement: Placement, run: Run | None) -> bool:
        """Whether a job could use a turn: not while it, or another job, has first to leave."""
        if want.intent is not Intent.RUN:
            return False
        if run is not None and (goal := self._table.goal(run, want)) is not Goal.RUN:
            may_continue = goal is Goal.MOVE and run.actual() is Actual.PARKED and self._table.fits(run, placement)
            return may_continue and not self._table.is_blocked(placement, uid)
        return run is not None or not self._table.is_blocked(placement, uid)

    def goal(self, run: Run, goal: Goal) -> Goal:
        """What is wanted of a run now: one that is to run stands by until it has the turn."""
        return Goal.STAND_BY if goal is Goal.RUN and not self._rotation.has_turn(run.uid) else goal

    def must_wait(self, uid: str, placement: Placement) -> bool:
        """Whether a job may not run yet: it is not its turn, or the job that had it has not paused yet."""
        if placement.sharing is not Sharing.TIME_SLICE:
            return False
        devices = set(placement.devices())
        return not self._rotation.has_turn(uid) or any(
            run.uid != uid and not devices.isdisjoint(run.placement.devices()) and run.actual() not in IDLE
            for run in self._table.runs.values()
        )

    def resuming(self, uid: str, now_s: float) -> None:
        """A job was ordered to continue."""
        if (due := self._due.get(uid)) is not None and due.ordered_s is None:
            self._due[uid] = due._replace(ordered_s=now_s)

    def resumed(self, uid: str, now_s: float) -> None:
        """A job that was ordered to continue does so."""
        due = self._due.get(uid)
        if due is not None and due.ordered_s is not None:
            del self._due[uid]
            self.switching.switches += 1
            self.switching.stopping_s += due.ordered_s - due.since_s
            self.switching.starting_s += now_s - due.ordered_s
