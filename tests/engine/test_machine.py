"""The engine under anything that can happen, in any order: what must hold, holds after every step.

A policy decides random but valid commands; an executor that a test plays answers them in random order, late, or with a
failure; users submit and cancel; nodes come and go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from audit import check_capacity, check_equal, check_jobs, check_neighbours
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from machine_jobs import job_specs
from machine_room import MachineRoom, numbers, pauses
from machine_seen import Observations
from random_policy import REPARTITION, START, Dice, RandomPolicy

from builders import commands_of
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.commands import Migrate, Provision, Rearrange, Resize, Resume, Start, Suspend
from gpuwise.core.events import (
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRevised,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    WokeUp,
)
from gpuwise.core.job.life_cycle import ENDED, PLACED, Status
from gpuwise.core.observations import AttemptObserved
from gpuwise.core.units import GIB
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay
from gpuwise.engine.snapshot import cluster_of, restore, snapshot
from gpuwise.policies.placing.placement import best_fit, consolidated, first_fit, spread, worst_fit
from gpuwise.policies.placing.roles import with_roles

FAST = {"gpu_type": "A100", "gpu_memory_bytes": 40 * GIB, "speed": 2.0}
CLUSTER = ClusterSpec(
    (
        NodeSpec(name="a0", gpus=2, cpus=16, memory_bytes=64 * GIB, labels=(("zone", "a"),), **FAST),
        NodeSpec(name="a1", gpus=2, cpus=8, memory_bytes=64 * GIB, labels=(("zone", "b"),), **FAST),
        NodeSpec(name="t0", gpu_type="T4", gpus=4, gpu_memory_bytes=16 * GIB, labels=(("zone", "b"),)),
        NodeSpec(name="c0", gpu_type="", gpus=0, cpus=8, memory_bytes=32 * GIB, labels=(("zone", "a"),)),
    )
)

PLACERS = {"best": best_fit, "first": first_fit, "worst": worst_fit, "consolidated": consolidated, "spread": spread}

scripts = st.binary(min_size=24, max_size=64)
"""Numbers for the policy; as bytes, since a list of numbers takes much of what hypothesis may draw for an example."""


class EngineMachine(MachineRoom, Observations):
    """Plays the executor, the users and the machine room."""

    @initialize(placer=st.sampled_from(sorted(PLACERS)), data=st.data())
    def begin(self, placer: str, data: st.DataObject) -> None:
        self.policy = RandomPolicy()
        self.engine = Engine(CLUSTER, self.policy, placer=with_roles(PLACERS[placer]))
        self.state = self.engine.state
        self.now_s = 0.0
        self.joining: list[NodeSpec] = []
        self.unknown_nodes = 0
        self.seen: list[AttemptObserved] = []
        self.held_gpu_s = 0.0
        self.loading_gpu_s = 0.0
        self.work: dict[int, float] = {}
        self.may_lose: set[int] = set()
        self.submit(data, 0.0, 6)
        self.decide([REPARTITION, 0, 0], 0.0)

    # -- driving -------------------------------------------------------------------------------------------------

    def _pass(self, pause_s: float) -> None:
        held = sum(placement.gpus * placement.milli / 1000 for placement in self.state.placed.values())
        self.held_gpu_s += held * pause_s
        loading = (self.state.placed[job] for job in self._in(Status.STARTING))
        self.loading_gpu_s += sum(placement.gpus * placement.milli / 1000 for placement in loading) * pause_s
        self.now_s += pause_s

    def _tell(self, *events: Event | AttemptObserved) -> None:
        before = {job: self.state.status(job) for job in range(len(self.state.jobs))}
        commands = commands_of(self.engine, self.now_s, *events)
        for command in commands:
            if isinstance(command, (Start, Resume, Migrate, Resize)):
                assert self.state.status(command.job) is Status.STARTING
            elif isinstance(command, Suspend):
                assert self.state.status(command.job) is Status.SUSPENDING
            elif isinstance(command, Rearrange):
                assert all(self.state.status(job) is Status.STARTING for job, _ in command.moves)
            elif isinstance(command, Provision):
                self.joining.append(command.node)
        for job, status in before.items():
            assert status not in ENDED or self.state.status(job) is status, "a job that had ended lives again"

    def _in(self, *statuses: Status) -> list[int]:
        return [job for job in range(len(self.state.jobs)) if self.state.status(job) in statuses]

    def _believed(self, job: int) -> float:
        """Steps a running job is believed to have done by now."""
        jobs = self.state.jobs
        done = jobs.steps_done.item(job)
        if self.state.status(job) is Status.RUNNING:
            done += jobs.rate.item(job) * (self.now_s - jobs.since_s.item(job))
        return min(done, jobs.steps.item(job))

    def _kept(self, job: int, newer: float) -> float:
        """The steps that survive: those last saved, and some since if there is a newer checkpoint."""
        saved = self.state.jobs.saved_steps.item(job)
        return saved + newer * (self.state.jobs.steps_done.item(job) - saved)

    # -- users ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.state.jobs) < 25)
    @rule(data=st.data(), pause_s=pauses, count=st.integers(1, 4))
    def submit(self, data: st.DataObject, pause_s: float, count: int) -> None:
        self._pass(pause_s)
        first = len(self.state.jobs)
        specs = [data.draw(job_specs(f"j{first + i}", self.now_s)) for i in range(count)]
        rows = self.state.jobs.declare(specs)
        self._tell(*(JobSubmitted(self.now_s, row) for row in rows))

    @precondition(lambda self: len(self._in(Status.CANCELLED)) < len(self.state.jobs) // 6)
    @rule(number=numbers, pause_s=pauses)
    def cancel(self, number: int, pause_s: float) -> None:
        self._pass(pause_s)
        alive = self._in(*set(Status) - ENDED)
        if alive:
            job = Dice([number]).one_of(alive)
            self._tell(JobCancelled(self.now_s, job))
            assert self.state.status(job) is Status.CANCELLED

    @precondition(lambda self: len(self.state.on_hold) < 2)
    @rule(number=numbers, pause_s=pauses)
    def hold(self, number: int, pause_s: float) -> None:
        """A job that is held leaves its GPUs, or the line."""
        alive = [job for job in self._in(*set(Status) - ENDED) if job not in self.state.on_hold]
        if alive:
            self._pass(pause_s)
            job = Dice([number]).one_of(alive)
            self._tell(JobHeld(self.now_s, job, "user"))
            assert job not in self.state.waiting
            assert job not in self.state.placed

    @precondition(lambda self: self.state.on_hold)
    @rule(number=numbers, pause_s=pauses)
    def release(self, number: int, pause_s: float) -> None:
        self._pass(pause_s)
        job = Dice([number]).one_of(sorted(self.state.on_hold))
        self._tell(JobReleased(self.now_s, job))

    @rule(number=numbers, pause_s=pauses, factor=st.sampled_from([0.25, 1.0, 3.0]), memory=st.sampled_from([0.0, GIB]))
    def revise(self, number: int, pause_s: float, factor: float, memory: float) -> None:
        """Something better is known of a job; what part of it is done stays the same."""
        alive = self._in(*set(Status) - ENDED)
        if not alive:
            return
        self._pass(pause_s)
        jobs, job = self.state.jobs, Dice([number]).one_of(alive)
        part = self._believed(job) / jobs.steps.item(job)
        self._tell(
            JobRevised(
                self.now_s,
                job,
                duration_s=jobs.duration_s.item(job) * factor,
                steps=jobs.steps.item(job) * 2 if factor > 1 else None,
                gpu_memory_bytes=memory if job not in self.state.placed else None,
            )
        )
        assert self._believed(job) / jobs.steps.item(job) == pytest.approx(part)

    # -- the policy ----------------------------------------------------------------------------------------------

    @rule(script=scripts, pause_s=pauses)
    def decide(self, script: Sequence[int], pause_s: float) -> None:
        self._pass(pause_s)
        self.policy.dice = Dice(script)
        self._tell(WokeUp(self.now_s))

    @precondition(lambda self: self.state.waiting)
    @rule(numbers=scripts, pause_s=pauses)
    def start_jobs(self, numbers: Sequence[int], pause_s: float) -> None:
        """The policy starts whatever it can, and the executor obeys at once."""
        self.decide([each for number in numbers for each in (START, number)], pause_s)
        self._tell(*(JobStarted(self.now_s, job) for job in self._in(Status.STARTING)))

    @precondition(lambda self: len(self._in(Status.RUNNING)) > 1)
    @rule(script=scripts, pause_s=pauses)
    def decide_on_running_jobs(self, script: Sequence[int], pause_s: float) -> None:
        self.decide(script, pause_s)

    # -- the executor --------------------------------------------------------------------------------------------

    @precondition(lambda self: self._in(Status.STARTING))
    @rule(picks=st.lists(numbers, min_size=1, max_size=6), pause_s=pauses)
    def report_started(self, picks: list[int], pause_s: float) -> None:
        self._pass(pause_s)
        jobs = Dice(picks).some_of(self._in(Status.STARTING), len(picks))
        self._tell(*(JobStarted(self.now_s, job) for job in jobs))

    @precondition(lambda self: self._in(Status.RUNNING))
    @rule(number=numbers, ahead=st.floats(0, 1), pause_s=pauses)
    def report_progress(self, number: int, ahead: float, pause_s: float) -> None:
        """Never less than was believed, so that work only grows."""
        self._pass(pause_s)
        job = Dice([number]).one_of(self._in(Status.RUNNING))
        believed, steps = self._believed(job), self.state.jobs.steps.item(job)
        done = min(believed + ahead * (steps - believed), steps)
        self._tell(JobProgressed(self.now_s, job, done))
        assert self.state.jobs.steps_done.item(job) == done

    @precondition(lambda self: self._in(Status.SUSPENDING))
    @rule(picks=st.lists(numbers, min_size=1, max_size=6), pause_s=pauses)
    def report_suspended(self, picks: list[int], pause_s: float) -> None:
        self._pass(pause_s)
        jobs = Dice(picks).some_of(self._in(Status.SUSPENDING), len(picks))
        done = {job: self.state.jobs.steps_done.item(job) for job in jobs}
        self._tell(*(JobSuspended(self.now_s, job, steps) for job, steps in done.items()))
        assert all(self.state.jobs.saved_steps.item(job) == steps for job, steps in done.items())

    @precondition(lambda self: self._in(Status.RUNNING, Status.SUSPENDING))
    @rule(number=numbers, pause_s=pauses)
    def report_finished(self, number: int, pause_s: float) -> None:
        """A job that was asked to suspend may come to its end first."""
        self._pass(pause_s)
        job = Dice([number]).one_of(self._in(Status.RUNNING, Status.SUSPENDING))
        self._tell(JobFinished(self.now_s, job))
        assert self.state.status(job) is Status.SUCCEEDED
        assert self.state.jobs.steps_done.item(job) == self.state.jobs.steps.item(job)

    @precondition(lambda self: len(self._in(*PLACED, Status.SUSPENDING)) > 2)
    @rule(number=numbers, retry=st.booleans(), newer=st.sampled_from([0.0, 0.5]), pause_s=pauses)
    def report_failed(self, number: int, retry: bool, newer: float, pause_s: float) -> None:
        self._pass(pause_s)
        job = Dice([number]).one_of(self._in(*PLACED, Status.SUSPENDING))
        kept = self._kept(job, newer)
        self.may_lose.add(job)
        self._tell(JobFailed(self.now_s, job, kept, "out of memory", retry))
        assert self.state.status(job) is (Status.PENDING if retry else Status.FAILED)

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_handed_out_twice(self) -> None:
        check_capacity(self.state)

    @invariant()
    def no_job_is_lost_or_run_twice(self) -> None:
        check_jobs(self.state)

    @invariant()
    def neighbours_know_of_each_other(self) -> None:
        check_neighbours(self.state)

    @invariant()
    def gpu_time_is_conserved(self) -> None:
        view = self.engine.view
        attained = sum(view.attained_gpu_s(job) for job in range(len(self.state.jobs)))
        assert attained == pytest.approx(self.held_gpu_s, rel=1e-9, abs=1e-6)

    @invariant()
    def gpu_time_without_a_step_is_counted_as_overhead(self) -> None:
        jobs = self.state.jobs
        counted = sum(jobs.overhead_gpu_s.item(job) for job in range(len(jobs)))
        for job in self._in(Status.STARTING):
            counted += self.engine.view.attained_gpu_s(job) - jobs.attained_gpu_s.item(job)
        assert counted == pytest.approx(self.loading_gpu_s, rel=1e-9, abs=1e-6)

    @invariant()
    def work_is_lost_only_by_failures_and_then_back_to_what_was_saved(self) -> None:
        jobs = self.state.jobs
        for job in range(len(jobs)):
            done, saved = jobs.steps_done.item(job), jobs.saved_steps.item(job)
            if done < self.work.get(job, 0.0):
                assert job in self.may_lose
                assert done == saved
            assert saved <= done
            self.work[job] = done
        self.may_lose.clear()

    @invariant()
    def everybody_who_waits_is_told_why(self) -> None:
        for job in self._in(Status.PENDING, Status.SUSPENDED, Status.SUSPENDING):
            assert str(self.engine.reason(job))
        for job in self._in(*PLACED, *ENDED):
            assert self.engine.reason(job) is None

    @invariant()
    def replaying_the_journal_gives_the_same_state(self) -> None:
        check_equal(self.state, replay(self.engine.journal.lines()))

    @invariant()
    def a_snapshot_leads_to_the_same_state_but_for_what_has_ended(self) -> None:
        document = json.loads(json.dumps(snapshot(self.state)))
        engine = Engine(cluster_of(document), self.policy, placer=first_fit)
        restore(engine.state, document)
        check_capacity(engine.state)
        check_jobs(engine.state)
        check_neighbours(engine.state)
        assert snapshot(engine.state) == snapshot(self.state)


EngineMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestEngineMachine = EngineMachine.TestCase
