"""The engine: takes events, asks the policy, checks what it says, and is the only one to change state."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from gpuwise.core.assignments import Assignment, Desired, DeviceCut, Intent, NodeRequest
from gpuwise.core.cluster.capacity import OverAllocationError
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import (
    NOTHING,
    Command,
    Decision,
    Migrate,
    MigSlice,
    Placement,
    Provision,
    Rearrange,
    Reason,
    Release,
    Repartition,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
    Why,
)
from gpuwise.core.decision.allowed import wrong_placement
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import (
    EVENT_TYPES,
    BackOffEnded,
    Event,
    JobCancelled,
    JobHeld,
    JobNoted,
    NodeEvent,
    StartRefused,
    WokeUp,
)
from gpuwise.core.job.table import ENDED, PLACED, JobTable, Status
from gpuwise.core.observations import AttemptObserved
from gpuwise.core.protocols import MakeRates, Placer, Policy
from gpuwise.core.spec import ClusterSpec
from gpuwise.devices.mig import check_slices
from gpuwise.engine.handlers import HANDLERS
from gpuwise.engine.journal import Journal
from gpuwise.engine.node_transitions import is_news
from gpuwise.engine.observing import NewestUnwanted, events_of
from gpuwise.engine.transitions import LifeCycleError

E = TypeVar("E", bound=Event)


class InvalidDecisionError(GpuwiseError):
    """A policy decided what cannot be done."""


RUN = Intent.RUN
RARE = (JobCancelled, JobHeld, NewestUnwanted, StartRefused, NodeEvent)
"""Events that may have consequences of their own."""
COMMON = {kind: HANDLERS[kind] for kind in EVENT_TYPES if not issubclass(kind, RARE)}
"""The handlers of all other events."""
_BEGINS: dict[type[Command], int] = {Start: int(Status.PENDING), Resume: int(Status.SUSPENDED)}


class Engine:
    """One state, one policy, one journal."""

    def __init__(
        self,
        cluster: ClusterSpec,
        policy: Policy,
        *,
        placer: Placer,
        seed: int = 0,
        beliefs: MakeRates | None = None,
        jobs: JobTable | None = None,
        round_s: float | None = None,
    ) -> None:
        if round_s is not None and not (round_s > 0 and math.isfinite(round_s)):
            raise GpuwiseError(f"a round of {round_s} s; it must be above 0")
        self.policy = policy
        self.state = ClusterState(cluster, beliefs, jobs)
        self._columns: Mapping[str, float] = getattr(policy, "columns", {})
        self.view = ClusterView(self.state, placer, self._columns)
        if hasattr(policy, "rank"):
            self.state.waiting.key = partial(policy.rank, self.view)
        self.journal = Journal(cluster, self.state.jobs, policy.name, seed)
        self.wake_at: float | None = None
        """When to take in the next moment even if nothing happens."""
        self._policy_wake_at: float | None = None
        """When the policy wants to be asked again, or the next round begins."""
        self.decide_s = array("d")
        """How long each decision took."""
        self._rng = np.random.default_rng(seed)
        self._wakes_on = policy.wakes_on | {WokeUp}
        self._round_s = round_s
        self._last: Decision = NOTHING
        self._asked = False
        """Whether something has happened that the policy wants to know of."""
        self._wanted: list[Desired] = []
        """What is wanted since it was last told."""

    # -- what happens ---------------------------------------------------------------------------------------------

    def step(self, now_s: float, happened: Sequence[Event | AttemptObserved]) -> Sequence[Desired]:
        """Takes in what happened, asks the policy if that is its business, and returns what is wanted now."""
        self.take_in(now_s, happened)
        return self.decide()

    def take_in(self, now_s: float, happened: Sequence[Event | AttemptObserved]) -> bool:
        """Takes in what happened; what is no news changes nothing and is not written down.

        True if `decide` has something to say.
        """
        state, record, wakes_on = self.state, self.journal.append, self._wakes_on
        if now_s > state.now_s:
            state.now_s = now_s
        else:
            now_s = state.now_s
        refused = False
        if state.backing_off or state.avoiding:
            refused, happened = True, [*self._back_in_line(), *happened]
        for each in happened:
            for event in events_of(state, each) if type(each) is AttemptObserved else (each,):
                kind = type(event)
                handle = COMMON.get(kind)
                if handle is None:
                    self._take_in_rare(event)
                    continue
                if event.at_s != now_s:
                    event = self._in_time(event)
                handle(state, event)
                record(event)
                if kind in wakes_on:
                    self._asked = True
        if refused:
            self._wake_after_refusals()
        return self._asked or bool(self._wanted)

    def _in_time(self, event: E) -> E:
        """An event that does not come from the future; of one reported late, replay must know what time it was."""
        now_s = self.state.now_s
        if event.at_s < now_s:
            self.journal.append(WokeUp(now_s))
        return replace(event, at_s=now_s) if event.at_s > now_s else event

    def _take_in_rare(self, event: Event) -> None:
        """Takes in an event that may have consequences of its own."""
        if isinstance(event, NodeEvent):
            self._change_nodes(event)
            return
        if isinstance(event, NewestUnwanted):
            self._wanted.append(self._leave(event.job, Intent.STOP))
            return
        event = self._in_time(event)
        consequence = self._consequence(event) if isinstance(event, (JobCancelled, JobHeld)) else ()
        HANDLERS[type(event)](self.state, event)
        self.journal.append(event)
        if consequence:
            self._carry_out(consequence)
        if isinstance(event, StartRefused):
            self._wake_after_refusals()
        self._asked |= type(event) in self._wakes_on

    def _change_nodes(self, event: NodeEvent) -> None:
        """Takes in an event that may cost jobs their place, and says that their attempts there are not wanted."""
        state = self.state
        if not is_news(state, event):
            return
        before = (*state.placed, *state.leaving)
        event = self._in_time(event)
        HANDLERS[type(event)](state, event)
        self.journal.append(event)
        gone = [job for job in before if job not in state.placed and job not in state.leaving]
        self._wanted += [self._leave(job, Intent.STOP) for job in gone]
        self._asked |= type(event) in self._wakes_on

    def decide(self) -> Sequence[Desired]:
        """Asks the policy if something has happened that it wants to know of; what is wanted since the last call."""
        if self._asked:
            self._asked = False
            if self._round_s is None or self._round_begins(self.state.now_s):
                begun = perf_counter()
                decision = self._last = self.policy.decide(self.view, self._rng)
                self.decide_s.append(perf_counter() - begun)
                self.wake_at = self._policy_wake_at = decision.wake_at
                if decision is not NOTHING or self._round_s is not None:
                    self._take_up(decision)
                if self.state.backing_off or self.state.avoiding:
                    self._wake_after_refusals()
        if not (wanted := self._wanted):
            return ()
        self._wanted = []
        return wanted

    def order(self, now_s: float, commands: Sequence[Command]) -> Sequence[Desired]:
        """Carries out what a person asks for, checked as a policy's decision is."""
        if now_s > self.state.now_s:
            self.state.now_s = now_s
            self.journal.append(WokeUp(now_s))
        self._carry_out(commands, by="a person")
        wanted, self._wanted = self._wanted, []
        return wanted

    def take_over(self, before: Engine) -> None:
        """Wakes up when an engine whose state this one has would have."""
        self.wake_at, self._policy_wake_at = before.wake_at, before._policy_wake_at

    def desired(self) -> list[Desired]:
        """Everything that is wanted of the world: what an executor is told when it, or the engine, is new."""
        state = self.state
        wanted: list[Desired] = [NodeRequest(node, True) for node in state.requested.values()]
        leaving_rows = [row for name in sorted(state.released) if (row := state.nodes.row(name)) is not None]
        wanted += [NodeRequest(state.nodes.specs[row], False) for row in leaving_rows]
        wanted += [self._cut(*where, slices) for where, slices in state.capacity.layouts.items()]
        wanted += self.addressed([self._run(job) for job in state.placed])
        status = state.jobs.status[: state.submitted]
        leaving = np.flatnonzero((status == Status.SUSPENDING) | (status == Status.SUSPENDED))
        return [*wanted, *(self._leave(job, Intent.SUSPEND) for job in leaving.tolist())]

    def reason(self, job: int) -> Reason | None:
        """Why a job waits; None for one that does not wait."""
        status = self.state.status(job)
        if status in PLACED or status in ENDED or status is Status.DECLARED:
            return None
        if status is Status.SUSPENDING:
            return Reason(Why.STOPPING)
        if job in self.state.holds:
            return Reason(Why.HELD)
        if (until_s := self.state.backing_off.get(job)) is not None:
            return Reason(Why.BACK_OFF, {"times": self.state.jobs.refusals.item(job), "at_s": until_s})
        if self._round_s is not None and self.wake_at is not None and self._last is NOTHING:
            return Reason(Why.NEXT_ROUND, {"at_s": self.wake_at})
        return self._last.reasons(job)

    def _back_in_line(self) -> list[Event]:
        now_s, backing_off = self.state.now_s, self.state.backing_off
        due = [job for job, until_s in backing_off.items() if until_s <= now_s]
        due += [job for job, until_s in self.state.avoiding.items() if until_s <= now_s and job not in backing_off]
        return [BackOffEnded(now_s, job) for job in due]

    def _consequence(self, event: Any) -> tuple[Command, ...]:
        """What follows of itself: a cancelled job leaves no process behind, one that is held its GPUs."""
        if isinstance(event, JobHeld):
            return (Suspend(event.job),) if event.job in self.state.placed else ()
        status = self.state.status(event.job)
        return (Stop(event.job),) if status in PLACED or status in (Status.SUSPENDING, Status.SUSPENDED) else ()

    def _round_begins(self, now_s: float) -> bool:
        """Whether this is the first moment of a round; else asks to be woken at the next."""
        assert self._round_s is not None
        rounds = now_s / self._round_s
        if abs(rounds - round(rounds)) * self._round_s < 1e-6:
            return True
        self.wake_at = self._policy_wake_at = math.ceil(rounds) * self._round_s
        return False

    def _take_up(self, decision: Decision) -> None:
        commands = decision.commands
        if len(commands) > 1:
            self._check_once(commands)
        notes = self._noted(decision.notes) if decision.notes else ()
        if commands:
            self._carry_out(commands)
        for note in notes:
            HANDLERS[JobNoted](self.state, note)
            self.journal.append(note)
        if self._round_s is not None and (self.state.waiting or commands):
            next_s = (math.floor(self.state.now_s / self._round_s + 1e-9) + 1) * self._round_s
            self.wake_at = self._policy_wake_at = next_s

    def _wake_after_refusals(self) -> None:
        """Wakes for whoever may be tried again next, if the policy does not want to be woken before."""
        due_s = min((*self.state.backing_off.values(), *self.state.avoiding.values()), default=math.inf)
        due_s = min(due_s, math.inf if self._policy_wake_at is None else self._policy_wake_at)
        self.wake_at = None if due_s == math.inf else due_s

    def _noted(self, notes: Sequence[tuple[str, int, float]]) -> list[JobNoted]:
        """What a policy writes to its own columns, checked."""
        for column, job, value in notes:
            if column not in self._columns:
                raise InvalidDecisionError(
                    f"policy {self.policy.name!r} writes to column {column!r}, which is not among its `columns`"
                )
            if not 0 <= job < self.state.submitted or not math.isfinite(value):
                raise InvalidDecisionError(f"policy {self.policy.name!r} writes {value} to {column!r} of job {job}")
        return [JobNoted(self.state.now_s, job, column, float(value)) for column, job, value in notes]

    def _carry_out(self, commands: Sequence[Command], by: str = "") -> None:
        state, jobs, record = self.state, self.state.jobs, self.journal.append
        command: Any
        for command in commands:
            kind = type(command)
            try:
                self._check(kind, command)
                if kind is Repartition and not by:  # how a machine is found to be cut needs no catalogue's leave
                    self._check_cut(command)
                HANDLERS[kind](state, command)
            except (OverAllocationError, LifeCycleError, InvalidDecisionError) as error:
                who = by or f"policy {self.policy.name!r}"
                raise InvalidDecisionError(f"{who} decided {command}: {error}") from error
            record(command)
            if kind is Start or kind is Resume:
                job = command.job
                self._wanted.append(Assignment(jobs.ids[job], jobs.placements.item(job), RUN, command.placement))
            else:
                self._wanted += self._desired_by(command)

    def _run(self, job: int) -> Assignment:
        jobs, placement = self.state.jobs, self.state.placed[job]
        return Assignment(jobs.ids[job], jobs.placements.item(job), RUN, placement)

    def addressed(self, desired: Sequence[Desired]) -> list[Desired]:
        """What is wanted, for an executor that knows nothing of the engine's tables: devices by name."""
        return [
            self._addressed(each) if isinstance(each, Assignment) and each.placement is not None else each
            for each in desired
        ]

    def _addressed(self, wanted: Assignment) -> Assignment:
        state, job = self.state, self.state.jobs.row_of[wanted.job]
        assert wanted.placement is not None
        since_s = state.jobs.placed_s.item(job) - state.jobs.held_s.item(job)
        started = state.status(job) is Status.RUNNING and wanted.attempt == state.jobs.placements.item(job)
        where, names = state.nodes.where(wanted.placement), state.nodes.names
        tasks = tuple((role, names[node], count) for role, node, count in wanted.placement.tasks)
        return wanted._replace(where=where, held_since_s=since_s, started=started, tasks=tasks)

    def _leave(self, job: int, intent: Intent) -> Assignment:
        return Assignment(self.state.jobs.ids[job], self.state.jobs.placements.item(job), intent)

    def _desired_by(self, command: Command) -> list[Desired]:
        """What a command that was carried out makes of the world."""
        if isinstance(command, Suspend):
            return [self._leave(command.job, Intent.SUSPEND)]
        if isinstance(command, Stop):
            return [self._leave(command.job, Intent.STOP)]
        if isinstance(command, (Migrate, Resize)):
            return [self._run(command.job)]
        if isinstance(command, Rearrange):
            return [self._run(job) for job, _ in command.moves]
        if isinstance(command, Repartition):
            return [self._cut(command.node, command.device, command.slices)]
        if isinstance(command, Provision):
            return [NodeRequest(command.node, True)]
        return [NodeRequest(self.state.nodes.specs[command.node], False)] if isinstance(command, Release) else []

    def _cut(self, node: int, device: int, slices: tuple[MigSlice, ...]) -> DeviceCut:
        spec = self.state.nodes.specs[node]
        return DeviceCut(spec.name, spec.device_id(device), slices, (node, device))

    def _check_once(self, commands: Sequence[Command]) -> None:
        """A decision has one command for a job: what a second one finds would depend on how the first came out."""
        told: set[int] = set()
        for command in commands:
            moves = command.moves if isinstance(command, Rearrange) else ((getattr(command, "job", None), None),)
            jobs = {job for job, _ in moves if job is not None}
            if told & jobs:
                twice = self.state.jobs.ids[min(told & jobs)]
                raise InvalidDecisionError(
                    f"policy {self.policy.name!r} decided {command}: it has another command for job {twice!r}"
                )
            told |= jobs

    def _check(self, kind: type[Command], command: Any) -> None:
        """Start is for jobs that never ran or must begin again, resume for the suspended, the rest for the placed."""
        if kind in _BEGINS:
            state, job = self.state, command.job
            if state.jobs.status.item(job) != _BEGINS[kind]:
                raise InvalidDecisionError(f"its job is {state.status(job).name}, not {Status(_BEGINS[kind]).name}")
            if job not in state.waiting:
                held = state.jobs.held.item(job)
                raise InvalidDecisionError(
                    "its job is held" if held else "its job is not in line: its start was refused a moment ago"
                )
            self._check_placement(job, command.placement)
        elif kind is Rearrange:
            self._check_moves(command.moves)
        elif kind in (Migrate, Resize):
            self._check_moves(((command.job, command.placement),))
        elif kind is Suspend:
            self._check_held(command.job)
        elif kind is Repartition:
            self._check_device(command.node, command.device)
        elif kind is Release and not (command.node >= 0 and self.state.nodes.row(command.node) is not None):
            raise InvalidDecisionError(f"there is no node {command.node}")
        elif kind is Stop and not 0 <= command.job < self.state.submitted:
            raise InvalidDecisionError(f"there is no job {command.job}")

    def _check_device(self, node: int, device: int) -> None:
        nodes = self.state.nodes
        if not (0 <= node < len(nodes) and 0 <= device < nodes.gpus.item(node)):
            raise InvalidDecisionError(f"there is no device {device} on node {node}")

    def _check_cut(self, command: Any) -> None:
        nodes = self.state.nodes
        try:
            check_slices(nodes.types[nodes.type_of[command.node]], command.slices)
        except GpuwiseError as error:
            raise InvalidDecisionError(str(error)) from error

    def _check_moves(self, moves: Sequence[tuple[int, Placement]]) -> None:
        """Jobs that move hold GPUs, may have the new ones, and there is room once they have left the old."""
        trial, jobs = self.state.capacity.fork(), self.state.jobs
        for job, placement in moves:
            self._check_held(job)
            self._check_placement(job, placement)
            trial.give(self.state.placed[job], jobs.shape_of(job))
        for job, placement in moves:
            trial.take(placement, jobs.shape_of(job))

    def _check_held(self, job: int) -> None:
        if job not in self.state.placed:
            raise InvalidDecisionError("its job holds no GPUs")

    def _check_placement(self, job: int, placement: Placement) -> None:
        if wrong := wrong_placement(placement, self.state.jobs.shape_by_row[job], self.state.capacity):
            raise InvalidDecisionError(f"job {self.state.jobs.ids[job]!r}: {wrong}")
