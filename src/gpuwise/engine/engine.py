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

from gpuwise.core.assignments import Assignment, Desired, Intent
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import NOTHING, Command, Decision, Reason, Repartition, Resume, Start, Stop, Suspend, Why
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError, OverAllocationError
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
from gpuwise.core.job.life_cycle import ENDED, PLACED, Status
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import AttemptObserved
from gpuwise.core.protocols import MakeRates, Placer, Policy
from gpuwise.engine.allocation import LifeCycleError
from gpuwise.engine.checks import InvalidDecisionError, check_command, check_notes, check_once, check_slices
from gpuwise.engine.desired import RUN, addressed, all_desired, desired_by, leave
from gpuwise.engine.journal import HANDLERS, Journal
from gpuwise.engine.node_transitions import is_news
from gpuwise.engine.observing import NewestUnwanted, events_of

E = TypeVar("E", bound=Event)


RARE = (JobCancelled, JobHeld, NewestUnwanted, StartRefused, NodeEvent)
"""Events that may have consequences of their own."""
COMMON = {kind: HANDLERS[kind] for kind in EVENT_TYPES if not issubclass(kind, RARE)}
"""The handlers of all other events."""


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
        """Seconds that each decision took."""
        self._rng = np.random.default_rng(seed)
        self._wakes_on = policy.wakes_on | {WokeUp}
        self._round_s = round_s
        self._last: Decision = NOTHING
        self._asked = False
        """Whether something has happened that the policy wants to know of."""
        self._wanted: list[Desired] = []
        """What is wanted and was not reported to the executor yet."""

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
            refused, happened = True, [*self._back_offs_ended(), *happened]
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
            self._wanted.append(leave(self.state, event.job, Intent.STOP))
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
        self._wanted += [leave(state, job, Intent.STOP) for job in gone]
        self._asked |= type(event) in self._wakes_on

    def decide(self) -> Sequence[Desired]:
        """Asks the policy if something has happened that it wants to know of; what is wanted since the last call."""
        if self._asked:
            self._asked = False
            if self._round_s is None or self._round_begins(self.state.now_s):
                begin = perf_counter()
                decision = self._last = self.policy.decide(self.view, self._rng)
                self.decide_s.append(perf_counter() - begin)
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
        """Everything that is wanted of the world: what an executor gets when it, or the engine, is new."""
        return all_desired(self.state)

    def addressed(self, desired: Sequence[Desired]) -> list[Desired]:
        """What is wanted, for an executor that knows nothing of the engine's tables: devices by name."""
        return addressed(self.state, desired)

    def reason(self, job: int) -> Reason | None:
        """Why a job waits; None for one that does not wait."""
        status = self.state.status(job)
        if status in PLACED or status in ENDED or status is Status.DECLARED:
            return None
        if status is Status.SUSPENDING:
            return Reason(Why.STOPPING)
        if job in self.state.on_hold:
            return Reason(Why.HELD)
        if (until_s := self.state.backing_off.get(job)) is not None:
            return Reason(Why.BACK_OFF, {"times": self.state.jobs.refusals.item(job), "at_s": until_s})
        if self._round_s is not None and self.wake_at is not None and self._last is NOTHING:
            return Reason(Why.NEXT_ROUND, {"at_s": self.wake_at})
        return self._last.reasons(job)

    def _back_offs_ended(self) -> list[Event]:
        now_s, backing_off = self.state.now_s, self.state.backing_off
        due = [job for job, until_s in backing_off.items() if until_s <= now_s]
        due += [job for job, until_s in self.state.avoiding.items() if until_s <= now_s and job not in backing_off]
        return [BackOffEnded(now_s, job) for job in due]

    def _consequence(self, event: Any) -> tuple[Command, ...]:
        """What follows of itself: a cancelled job leaves no process behind, one on hold leaves its GPUs."""
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
            check_once(self.state, self.policy.name, commands)
        if decision.notes:
            check_notes(self.state, self.policy.name, self._columns, decision.notes)
        if commands:
            self._carry_out(commands)
        for column, job, value in decision.notes:
            note = JobNoted(self.state.now_s, job, column, float(value))
            HANDLERS[JobNoted](self.state, note)
            self.journal.append(note)
        if self._round_s is not None and (self.state.waiting or commands):
            next_s = (math.floor(self.state.now_s / self._round_s + 1e-9) + 1) * self._round_s
            self.wake_at = self._policy_wake_at = next_s

    def _wake_after_refusals(self) -> None:
        """Wakes for the job that may be tried again next, if the policy does not want to be woken before."""
        due_s = min((*self.state.backing_off.values(), *self.state.avoiding.values()), default=math.inf)
        due_s = min(due_s, math.inf if self._policy_wake_at is None else self._policy_wake_at)
        self.wake_at = None if due_s == math.inf else due_s

    def _carry_out(self, commands: Sequence[Command], by: str = "") -> None:
        state, jobs, record = self.state, self.state.jobs, self.journal.append
        command: Any
        for command in commands:
            kind = type(command)
            try:
                check_command(state, kind, command)
                if kind is Repartition and not by:  # how a machine is found to be partitioned is not checked
                    check_slices(state, command)
                HANDLERS[kind](state, command)
            except (OverAllocationError, LifeCycleError, InvalidDecisionError) as error:
                who = by or f"policy {self.policy.name!r}"
                raise InvalidDecisionError(f"{who} decided {command}: {error}") from error
            record(command)
            if kind is Start or kind is Resume:
                job = command.job
                self._wanted.append(Assignment(jobs.ids[job], jobs.placements.item(job), RUN, command.placement))
            else:
                self._wanted += desired_by(state, command)
