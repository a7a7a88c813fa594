"""What is made of observations that come late, twice, out of order, or of attempts that are long over."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from builders import cluster, engine_with, job, node, on
from gpuwise.core.assignments import Assignment, Intent
from gpuwise.core.commands import Migrate, Resume, Start, Suspend, Why
from gpuwise.core.events import (
    BackOffEnded,
    Event,
    JobFailed,
    JobFinished,
    JobProgressed,
    JobRevised,
    JobStarted,
    JobSuspended,
    NodeLost,
    StartRefused,
    WokeUp,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.observations import AttemptObserved, Cause, Details, Phase
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay
from gpuwise.engine.snapshot import restore, snapshot
from gpuwise.policies.placing.placement import first_fit


def placed(spec: JobSpec | None = None, nodes: str = "2x2:V100") -> Engine:
    """One job of 100 steps in 100 s that was given a GPU at 10 s."""
    engine = engine_with([spec or job("a", 100.0, steps=100.0)], cluster(nodes))
    engine.order(10.0, (Start(0, on((0, 0))),))
    return engine


def see(
    engine: Engine, now_s: float, phase: Phase, attempt: int = 1, at_s: float | None = None, **more: Any
) -> list[Event]:
    """The events that the engine makes of an observation."""
    before = len(engine.journal)
    engine.take_in(now_s, [AttemptObserved(now_s if at_s is None else at_s, "a", attempt, phase, **more)])
    new = engine.journal.records[before:]
    return [each for each in new if isinstance(each, Event) and not isinstance(each, WokeUp)]


def test_a_start_is_news_once_and_not_before_the_job_got_its_place():
    engine = placed()
    assert see(engine, 20.0, Phase.RUNNING, at_s=5.0) == [JobStarted(10.0, 0)]
    assert see(engine, 21.0, Phase.RUNNING) == []


def test_nothing_is_said_of_jobs_and_attempts_that_are_not_known():
    engine = placed()
    assert see(engine, 11.0, Phase.RUNNING, attempt=2) == []
    assert see(engine, 11.0, Phase.RUNNING, attempt=0) == []
    engine.take_in(11.0, [AttemptObserved(11.0, "nobody", 1, Phase.SUCCEEDED)])
    assert engine.state.status(0) is Status.STARTING


def test_an_end_seen_twice_counts_once_even_if_its_start_was_never_seen():
    engine = placed()
    assert see(engine, 50.0, Phase.SUCCEEDED) == [JobFinished(50.0, 0)]
    assert see(engine, 51.0, Phase.SUCCEEDED) == []
    assert see(engine, 52.0, Phase.RUNNING) == []
    assert see(engine, 53.0, Phase.FAILED) == []


def test_gpu_time_ends_when_the_job_did_not_when_that_was_seen():
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    see(engine, 1000.0, Phase.SUCCEEDED, at_s=60.0)  # the controller was down for 940 s
    assert engine.state.jobs.attained_gpu_s.item(0) == 50.0
    assert engine.state.jobs.finish_s.item(0) == 60.0


@pytest.mark.parametrize(
    ("step", "steps", "known", "done"),
    [
        (5.0, 10.0, False, 50.0),  # half of its own ten steps is half of the engine's hundred
        (12.0, 10.0, False, 100.0),  # more than all is all
        (5.0, None, True, 5.0),  # its user said that there are 100
        (500.0, None, True, 100.0),
        (5.0, None, False, None),  # of how many?
        (5.0, 0.0, False, None),
    ],
)
def test_a_job_counts_its_own_steps(step: float, steps: float | None, known: bool, done: float | None):
    engine = placed(job("a", 100.0, steps=100.0 if known else None))
    see(engine, 10.0, Phase.RUNNING)
    events = see(engine, 10.0, Phase.RUNNING, step=step, steps=steps)
    assert events == ([] if done is None else [JobProgressed(10.0, 0, done)])


def test_progress_is_news_if_it_is_not_as_estimated():
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    # One step per second since 10 s: 20 of 100 at 30 s.
    assert see(engine, 30.0, Phase.RUNNING, step=20.0) == []
    assert see(engine, 30.0, Phase.RUNNING, step=21.9) == []
    assert see(engine, 30.0, Phase.RUNNING, step=22.1) == [JobProgressed(30.0, 0, 22.1)]


def test_a_job_that_starts_again_with_less_than_was_thought_says_so():
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    engine.order(60.0, (Suspend(0),))
    see(engine, 60.0, Phase.SUSPENDED)
    assert engine.state.jobs.steps_done.item(0) == 50.0  # nothing said: all it is thought to have done is kept
    engine.order(60.0, (Resume(0, on((0, 1))),))
    assert see(engine, 61.0, Phase.RUNNING, 2, step=30.0) == [JobStarted(61.0, 0), JobProgressed(61.0, 0, 30.0)]


def test_only_a_job_that_shall_leave_is_suspended():
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    engine.order(30.0, (Suspend(0),))
    assert see(engine, 31.0, Phase.SUSPENDED, step=7.0) == [JobSuspended(31.0, 0, 7.0)]


@pytest.mark.parametrize("phase", [Phase.SUSPENDED, Phase.MOVED, Phase.STOPPED, Phase.REFUSED])
def test_a_running_job_that_is_gone_without_being_asked_is_lost_and_does_not_hold_its_gpus_for_ever(phase: Phase):
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    (failed,) = see(engine, 20.0, phase)
    left = phase in (Phase.SUSPENDED, Phase.MOVED)  # with what it has done; of the others nobody knows how far they got
    assert (failed.kind, failed.will_retry) == ("lost", left)
    assert engine.state.capacity.idle_total == [4]


def test_nothing_happens_in_the_future():
    engine = placed(nodes="2x1:V100")
    engine.take_in(12.0, [NodeLost(50.0, "n0")])
    assert engine.state.jobs.attained_gpu_s.item(0) == 2.0
    assert replay(engine.journal.lines()).jobs.attained_gpu_s.item(0) == 2.0


def test_a_job_that_is_still_saving_where_a_node_is_lost_is_to_be_gone_there():
    engine = engine_with([job("a", 100.0, 2)], cluster("2x1:V100"))
    engine.order(10.0, (Start(0, on((0, 0), (1, 0))),))
    see(engine, 10.0, Phase.RUNNING)
    engine.order(20.0, (Suspend(0),))
    engine.take_in(21.0, [NodeLost(21.0, "n1")])
    assert engine.decide() == [Assignment("a", 1, Intent.STOP)]


def test_a_job_that_backs_off_cannot_be_started():
    engine = placed()
    refuse(engine, 11.0, 1)
    with pytest.raises(InvalidDecisionError, match="not in the queue"):
        engine.order(11.5, (Start(0, on((0, 0))),))
    assert engine.state.status(0) is Status.PENDING


def test_a_job_that_ends_while_it_is_to_move_has_ended_and_does_not_begin_elsewhere():
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    engine.order(20.0, (Migrate(0, on((1, 0))),))
    assert see(engine, 20.5, Phase.RUNNING) == []  # the first attempt, still there
    assert see(engine, 21.0, Phase.MOVED, attempt=1) == []
    assert see(engine, 22.0, Phase.SUCCEEDED, attempt=1) == [JobFinished(22.0, 0)]
    assert engine.decide() == [Assignment("a", 2, Intent.STOP)]


def test_what_is_seen_of_an_attempt_that_failed_does_not_fail_the_next():
    engine = placed(job("a", 100.0, retries=5))
    assert [event.will_retry for event in see(engine, 20.0, Phase.FAILED)] == [True]
    engine.order(20.0, (Start(0, on((0, 0))),))
    assert see(engine, 21.0, Phase.FAILED, attempt=1) == []
    assert see(engine, 22.0, Phase.RUNNING, attempt=2) == [JobStarted(22.0, 0)]


def test_a_job_has_succeeded_if_an_attempt_that_was_given_up_turns_out_to_have():
    engine = placed(nodes="2x1:V100")
    engine.take_in(20.0, [NodeLost(20.0, "n0")])
    assert engine.state.status(0) is Status.PENDING
    assert see(engine, 21.0, Phase.SUCCEEDED, at_s=19.0) == [JobFinished(19.0, 0)]
    assert not engine.state.waiting


def test_a_failure_says_what_is_kept_and_counts_against_the_retries():
    engine = placed(job("a", 100.0, retries=1))
    failed = see(engine, 20.0, Phase.FAILED, step=3.0, steps=4.0, details=Details(text="exit code 3"))
    assert failed == [JobFailed(20.0, 0, 75.0, "exit code 3", True, "error")]
    engine.order(20.0, (Start(0, on((0, 0))),))
    (failed,) = see(engine, 30.0, Phase.FAILED, attempt=2)
    assert not failed.will_retry
    assert engine.state.status(0) is Status.FAILED


def test_a_job_is_not_blamed_for_a_device_that_was_lost():
    engine = placed()
    for attempt in range(1, 20):
        details = Details(cause=Cause.DEVICE_LOST, text="GPU 0 was lost")
        (failed,) = see(engine, 10.0 + attempt, Phase.FAILED, attempt, details=details)
        assert failed.will_retry
        engine.order(10.0 + attempt, (Start(0, on((0, 0))),))
    assert engine.state.jobs.failures.item(0) == 0


def test_after_out_of_memory_a_job_is_thought_to_need_more():
    engine = engine_with([job("a", 100.0, gpu_memory_bytes=4e9)], cluster(node("n", 1, gpu_memory_bytes=16e9)))
    engine.order(0.0, (Start(0, on((0, 0))),))
    details = Details(cause=Cause.OUT_OF_MEMORY, peak_memory_bytes=4e9)
    failed, revised = see(engine, 5.0, Phase.FAILED, details=details)
    assert failed.will_retry
    assert revised == JobRevised(5.0, 0, gpu_memory_bytes=6e9)


# -- refused starts ----------------------------------------------------------------------------------------------------


def refuse(engine: Engine, now_s: float, attempt: int) -> list[Event]:
    details = Details(cause=Cause.BUSY, text="a notebook is on it", avoid=("n0",))
    return see(engine, now_s, Phase.REFUSED, attempt, details=details)


def test_a_job_whose_start_is_refused_waits_again_and_nothing_has_failed():
    engine = placed()
    assert refuse(engine, 11.0, 1) == [StartRefused(11.0, 0, "a notebook is on it", 12.0, ("n0",))]
    jobs = engine.state.jobs
    assert (engine.state.status(0), jobs.failures.item(0), jobs.refusals.item(0)) == (Status.PENDING, 0, 1)
    assert engine.state.capacity.idle_total == [4]
    assert 0 not in engine.state.waiting
    assert engine.reason(0).code is Why.BACK_OFF
    assert engine.wake_at == 12.0
    assert refuse(engine, 11.5, 1) == []  # seen twice


def test_a_refused_job_backs_off_longer_each_time_until_it_runs():
    engine, now_s, waits = placed(), 11.0, []
    for attempt in range(1, 12):
        (refused,) = refuse(engine, now_s, attempt)
        waits.append(refused.until_s - now_s)
        engine.take_in(refused.until_s - 0.1, [])
        assert 0 not in engine.state.waiting
        now_s = refused.until_s
        engine.take_in(now_s, [])
        assert BackOffEnded(now_s, 0) in engine.journal.records
        assert 0 in engine.state.waiting
        engine.order(now_s, (Start(0, on((0, 0))),))
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    see(engine, now_s, Phase.RUNNING, 12)
    assert engine.state.jobs.refusals.item(0) == 0


def test_a_suspended_job_whose_return_is_refused_is_suspended_still():
    engine = placed()
    see(engine, 10.0, Phase.RUNNING)
    engine.order(20.0, (Suspend(0),))
    see(engine, 20.0, Phase.SUSPENDED)
    engine.order(30.0, (Resume(0, on((1, 0))),))
    refuse(engine, 31.0, 2)
    assert engine.state.status(0) is Status.SUSPENDED
    assert engine.state.jobs.steps_done.item(0) == 10.0


def test_a_refused_job_that_is_cancelled_is_gone_and_replay_agrees():
    engine = placed()
    refuse(engine, 11.0, 1)
    state = replay(engine.journal.lines())
    assert state.backing_off == engine.state.backing_off == {0: 12.0}
    assert math.isclose(state.jobs.attained_gpu_s.item(0), 1.0)
    assert state.jobs.shape_of(0).avoid == engine.state.jobs.shape_of(0).avoid == ("n0",)


def two_nodes(count: int = 1) -> Engine:
    return engine_with([job("ab"[each]) for each in range(count)], cluster("2x1:V100"))


def test_a_refused_job_is_not_tried_where_it_was_refused_until_a_minute_after_its_back_off():
    engine = two_nodes(count=2)
    engine.order(1.0, (Start(0, on((0, 0))),))
    see(engine, 2.0, Phase.REFUSED, details=Details(cause=Cause.BUSY, avoid=("n0",)))
    engine.take_in(3.0, [])
    capacity, shape = engine.state.capacity, engine.state.jobs.shape_of
    assert first_fit(capacity, shape(0), 1) == on((1, 0))
    assert first_fit(capacity, shape(1), 1) == on((0, 0))  # others go there
    engine.order(4.0, (Start(1, on((1, 0))),))
    assert first_fit(capacity, shape(0), 1) is None  # rather than there again
    assert engine.wake_at == 63.0
    for state in (engine.state, replay(engine.journal.lines())):
        again = engine_with([], cluster("2x1:V100")).state
        restore(again, json.loads(json.dumps(snapshot(state))))
        assert (again.avoiding, again.jobs.shape_of(0).avoid) == ({0: 63.0}, ("n0",))
    engine.take_in(63.0, [])
    assert first_fit(capacity, shape(0), 1) == on((0, 0))  # it must not wait for ever
    assert engine.wake_at is None
    assert shape(0) == shape(1)


def test_a_job_that_is_to_avoid_all_nodes_avoids_none():
    engine = two_nodes()
    for attempt, at_s in ((1, 1.0), (2, 5.0)):
        engine.order(at_s, (Start(0, on((attempt - 1, 0))),))
        see(engine, at_s + 1, Phase.REFUSED, attempt, details=Details(avoid=(f"n{attempt - 1}",)))
        engine.take_in(at_s + 3, [])
    assert engine.state.jobs.shape_of(0).avoid == ("n0", "n1")
    assert first_fit(engine.state.capacity, engine.state.jobs.shape_of(0), 1) == on((0, 0))


def test_a_job_that_runs_avoids_nothing_any_more():
    engine = two_nodes()
    engine.order(1.0, (Start(0, on((0, 0))),))
    see(engine, 2.0, Phase.REFUSED, details=Details(avoid=("n0",)))
    engine.take_in(3.0, [])
    engine.order(3.0, (Start(0, on((1, 0))),))
    see(engine, 4.0, Phase.RUNNING, 2)
    assert engine.state.jobs.shape_of(0).avoid == ()
    assert not engine.state.avoiding


def test_a_late_failure_of_an_attempt_that_was_moved_says_nothing_of_the_one_that_runs():
    engine = placed()
    see(engine, 11.0, Phase.RUNNING)
    engine.order(20.0, (Migrate(0, on((1, 0))),))
    see(engine, 21.0, Phase.MOVED)
    see(engine, 22.0, Phase.RUNNING, 2)
    assert see(engine, 23.0, Phase.FAILED, 1, details=Details(cause=Cause.ERROR)) == []
    assert engine.state.status(0) is Status.RUNNING


def test_progress_older_than_what_is_known_is_no_news():
    engine = placed()
    see(engine, 11.0, Phase.RUNNING)
    assert see(engine, 40.0, Phase.RUNNING, step=60.0, steps=100.0) == [JobProgressed(40.0, 0, 60.0)]
    assert see(engine, 41.0, Phase.RUNNING, at_s=15.0, step=20.0, steps=100.0) == []
    assert engine.state.jobs.steps_done.item(0) == 60.0


def test_a_step_that_is_no_number_is_not_taken_in():
    engine = placed()
    see(engine, 11.0, Phase.RUNNING)
    assert see(engine, 20.0, Phase.RUNNING, step=math.nan, steps=100.0) == []
    engine.order(31.0, (Suspend(0),))
    assert see(engine, 31.0, Phase.SUSPENDED, step=math.nan, steps=100.0) == [JobSuspended(31.0, 0, 20.0)]
