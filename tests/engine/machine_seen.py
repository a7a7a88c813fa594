"""What an executor sees of attempts: refused starts, and everything late, twice, or of attempts that are long over."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from machine_room import numbers, pauses
from random_policy import Dice

from gpuwise.core.job.life_cycle import PLACED, Status
from gpuwise.core.observations import AttemptObserved, Cause, Details, Phase

PHASES = (Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED)


class Observations(RuleBasedStateMachine):
    """Attempts as they are seen; a subclass drives the engine."""

    state: Any
    policy: Any
    now_s: float
    may_lose: set[int]
    seen: list[AttemptObserved]
    """Everything that was seen so far."""

    def _see(self, job: int, phase: Phase, details: Details | None = None) -> None:
        jobs = self.state.jobs
        attempt = jobs.placements.item(job)
        known = AttemptObserved(self.now_s, jobs.ids[job], attempt, phase, details=details or Details())
        self.seen.append(known)
        self.policy.dice = Dice([])
        self._tell(known)

    @precondition(lambda self: self._in(Status.STARTING))
    @rule(number=numbers, pause_s=pauses, avoid=st.booleans())
    def refuse_a_start(self, number: int, pause_s: float, avoid: bool) -> None:
        """Nothing has failed: the job backs off, and its GPUs are free."""
        self._pass(pause_s)
        job = Dice([number]).one_of(self._in(Status.STARTING))
        failures = self.state.jobs.failures.item(job)
        nodes = {self.state.nodes.names[node] for node in self.state.placed[job].nodes}
        self.may_lose.add(job)
        self._see(job, Phase.REFUSED, Details(cause=Cause.BUSY, avoid=tuple(sorted(nodes)) if avoid else ()))
        assert self.state.status(job) in (Status.PENDING, Status.SUSPENDED)
        assert self.state.jobs.failures.item(job) == failures
        assert job in self.state.backing_off
        assert job not in self.state.waiting

    @precondition(lambda self: self._in(*PLACED))
    @rule(number=numbers, pause_s=pauses, phase=st.sampled_from(PHASES))
    def see_an_attempt(self, number: int, pause_s: float, phase: Phase) -> None:
        self._pass(pause_s)
        job = Dice([number]).one_of(self._in(*PLACED))
        self.may_lose.add(job)
        self._see(job, phase, Details(cause=Cause.LOST) if phase is Phase.FAILED else None)

    @precondition(lambda self: self.seen)
    @rule(picks=st.lists(numbers, min_size=1, max_size=4), pause_s=pauses)
    def see_it_again(self, picks: list[int], pause_s: float) -> None:
        """Whatever was seen before changes nothing when it is seen again, in any order."""
        self._pass(pause_s)
        self.policy.dice = Dice([])
        self._tell()  # who may be back in line by now, is
        before = (dict(self.state.placed), self.state.jobs.status[: len(self.state.jobs)].tolist())
        self._tell(*(Dice([pick]).one_of(self.seen) for pick in picks))
        assert (self.state.placed, self.state.jobs.status[: len(self.state.jobs)].tolist()) == before
