"""The engine: what it checks, how it counts time and work, when it asks its policy."""

from __future__ import annotations

import math
from typing import Any

import pytest
from test_life_cycle import happen

from builders import Scripted, cluster, engine_with, job, node, on, run, stays
from gpuwise.core.commands import Grant, Migrate, Placement, Release, Resize, Resume, Start, Stop, Suspend, Why
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import (
    CAPACITY_CHANGES,
    JobFailed,
    JobFinished,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeLost,
    NodeRemoved,
    WokeUp,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.engine.allocation import LifeCycleError
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import first_fit
from gpuwise.policies.registry import make_policy

# -- what it checks ----------------------------------------------------------------------------------------------------

NOT_ALLOWED = {
    "a GPU type it does not name": ({"gpu_types": ("A100",)}, on((0, 0)), "may not run on GPU type V100"),
    "too little memory on the device": ({"gpu_memory_bytes": 2e10}, on((0, 0)), "may not run on GPU type V100"),
    "part of the gang": ({"gpus": 2}, on((0, 0)), "may run on 2 to 2 GPUs, not 1"),
    "more than its range": ({"max_gpus": 2}, on((0, 0), (0, 1), (0, 2)), "may run on 1 to 2 GPUs, not 3"),
    "a way to share it does not allow": (
        {"gpu_frac": 0.5, "sharing": frozenset((Sharing.SHARED,))},
        on((0, 0), sharing=Sharing.TIME_SLICE, milli=500),
        "does not allow TIME_SLICE",
    ),
    "no share": ({"gpu_frac": 0.5}, on((0, 0), sharing=Sharing.SHARED, milli=0), "a share of 0/1000 of a GPU"),
    "more than a GPU": ({}, on((0, 0), sharing=Sharing.SHARED, milli=1001), "a share of 1001/1000 of a GPU"),
    "part of a GPU held alone": ({"gpu_frac": 0.5}, on((0, 0), milli=500), "500/1000"),
    "a device twice": ({"gpus": 2}, Placement((Grant(0, 1), Grant(0, 1))), "node a"),
}


@pytest.mark.parametrize(("asked", "placement", "why"), NOT_ALLOWED.values(), ids=NOT_ALLOWED)
def test_a_placement_that_the_job_does_not_allow_is_refused(asked: dict[str, Any], placement: Placement, why: str):
    spec = cluster(node("a", 4, "V100", gpu_memory_bytes=1.6e10), node("b", 4, "A100", gpu_memory_bytes=4e10))
    engine = engine_with([job("x", **asked)], spec)
    with pytest.raises(InvalidDecisionError, match=why):
        happen(engine, 0.0, Start(0, placement))


def test_a_node_with_jobs_on_it_is_not_released():
    engine = engine_with([job("x")], cluster("2x1:V100"))
    happen(engine, 0.0, Start(0, on((0, 0))))
    with pytest.raises(InvalidDecisionError, match="node 'n0' has jobs on it, or that are leaving it"):
        happen(engine, 0.0, Release(0))
    happen(engine, 0.0, Release(1))
    assert engine.state.capacity.idle_total == [0]


def test_progress_is_reported_by_jobs_that_run():
    engine = engine_with([job("x")], cluster("1x1:V100"))
    with pytest.raises(LifeCycleError, match="job 'x' reports progress but is not running"):
        engine.step(0.0, [JobProgressed(0.0, 0, 1.0)])


@pytest.mark.parametrize("round_s", [0.0, -1.0, math.inf, math.nan])
def test_a_round_has_a_length(round_s: float):
    with pytest.raises(GpuwiseError, match=r"a round of .* s; it must be above 0"):
        Engine(cluster("1x1:V100"), Scripted(), placer=first_fit, round_s=round_s)


# -- time and work -----------------------------------------------------------------------------------------------------


def test_gpu_time_and_overhead_of_a_job_with_a_story():
    engine = engine_with([job("x", 100.0, 2, min_gpus=1, max_gpus=4)], cluster("2x4:V100"))
    jobs = engine.state.jobs
    happen(engine, 10.0, Start(0, on((0, 0), (0, 1))))
    happen(engine, 13.0, JobStarted(13.0, 0))  # 3 s of loading on 2 GPUs: 6
    happen(engine, 33.0, Suspend(0))  # 2 GPUs from 10 to 33: 46
    assert (jobs.attained_gpu_s[0], jobs.held_s[0], jobs.overhead_gpu_s[0]) == (46, 23, 6)
    happen(engine, 35.0, JobSuspended(35.0, 0, 20.0))
    happen(engine, 40.0, Resume(0, on((1, 0), (1, 1))))
    happen(engine, 45.0, JobStarted(45.0, 0))  # 5 s on 2 GPUs: 10
    happen(engine, 50.0, Resize(0, on((1, 0), (1, 1), (1, 2), (1, 3))))  # 2 GPUs from 40 to 50: 20
    happen(engine, 51.0, JobStarted(51.0, 0))  # 1 s on 4 GPUs: 4
    happen(engine, 60.0, Migrate(0, on((0, 0), (0, 1), (0, 2), (0, 3))))  # 4 GPUs from 50 to 60: 40
    happen(engine, 62.0, JobStarted(62.0, 0))  # 2 s on 4 GPUs: 8
    happen(engine, 90.0, JobFinished(90.0, 0))  # 4 GPUs from 60 to 90: 120
    assert jobs.attained_gpu_s[0] == 46 + 20 + 40 + 120
    assert jobs.held_s[0] == 23 + 10 + 10 + 30
    assert jobs.overhead_gpu_s[0] == 6 + 10 + 4 + 8
    assert (jobs.first_start_s[0], jobs.finish_s[0], jobs.placements[0]) == (10, 90, 4)
    assert (jobs.preemptions[0], jobs.migrations[0], jobs.resizes[0]) == (1, 1, 1)


@pytest.mark.parametrize(
    "leaves",
    [Suspend(0), Migrate(0, on((1, 0))), JobFailed(7.0, 0, 0.0, "lost", True), NodeLost(7.0, 0, ())],
    ids=["suspend", "migrate", "failed", "node lost"],
)
def test_gpu_time_held_without_a_step_is_overhead_however_it_ends(leaves: Any):
    engine = engine_with([job("x")], cluster("2x1:V100"))
    happen(engine, 0.0, Start(0, on((0, 0))))
    happen(engine, 7.0, leaves)
    # One GPU from 0 to 7, all of it loading.
    assert engine.state.jobs.attained_gpu_s[0] == 7
    assert engine.state.jobs.overhead_gpu_s[0] == 7


def test_work_is_counted_by_the_believed_rate_and_corrected_by_reports():
    engine = engine_with([job("x", 100.0, 2, steps=1000.0, min_gpus=1)], cluster("2x2:V100"))
    jobs = engine.state.jobs
    happen(engine, 0.0, Start(0, on((0, 0), (0, 1))))
    happen(engine, 0.0, JobStarted(0.0, 0))
    assert jobs.rate[0] == 10
    happen(engine, 20.0, Migrate(0, on((1, 0), (1, 1))))
    assert jobs.steps_done[0] == 200  # 20 s × 10 steps a second
    happen(engine, 30.0, JobStarted(30.0, 0))
    happen(engine, 40.0, JobProgressed(40.0, 0, 270.0))  # believed 300; the report is right
    happen(engine, 50.0, Resize(0, on((1, 0))))
    assert jobs.steps_done[0] == 270 + 10 * 10
    happen(engine, 50.0, JobStarted(50.0, 0))
    assert jobs.rate[0] == 5  # half the GPUs
    happen(engine, 60.0, JobFailed(60.0, 0, 0.0, "out of memory", True))
    assert (jobs.steps_done[0], jobs.rate[0]) == (0, 0)
    assert engine.state.status(0) is Status.PENDING


def test_neighbours_on_a_device_are_believed_to_slow_each_other_down_while_both_are_there():
    two = [job(name, 100.0, gpu_frac=0.5, gpu_util_frac=0.8) for name in "ab"]
    engine = engine_with(two, cluster("1x1:V100"))
    jobs, half = engine.state.jobs, on((0, 0), sharing=Sharing.SHARED, milli=500)
    happen(engine, 0.0, Start(0, half))
    happen(engine, 0.0, JobStarted(0.0, 0))
    assert jobs.rate[0] == 1
    happen(engine, 10.0, Start(1, half))
    # 0.8 + 0.8 = 1.6 GPUs' worth of work on one GPU: each at 1 / 1.6 = 0.625, from when the other is placed.
    assert jobs.rate[0] == 0.625
    happen(engine, 20.0, JobStarted(20.0, 1))
    assert jobs.rate[:2].tolist() == [0.625, 0.625]
    assert jobs.steps_done[0] == 10 + 10 * 0.625
    happen(engine, 36.0, JobFinished(36.0, 1))
    assert jobs.rate[0] == 1
    assert jobs.steps_done[0] == 10 + 26 * 0.625


def test_a_lost_node_sends_its_jobs_back_with_what_they_saved():
    engine = engine_with([job("a", gpus=2), job("b"), job("c")], cluster("2x2:V100"))
    happen(engine, 0.0, Start(0, on((0, 0), (1, 0))))
    happen(engine, 0.0, Start(1, on((0, 1))))
    happen(engine, 0.0, Start(2, on((1, 1))))
    engine.step(0.0, [JobStarted(0.0, row) for row in range(3)])
    engine.step(4.0, [NodeLost(4.0, 0, ((0, 3.0),))])
    assert [engine.state.status(row) for row in range(3)] == [Status.PENDING, Status.PENDING, Status.RUNNING]
    assert engine.state.jobs.steps_done[:2].tolist() == [3, 0]
    assert engine.state.capacity.idle_total == [1]
    assert list(engine.state.waiting) == [0, 1]


# -- when it asks ------------------------------------------------------------------------------------------------------


def test_the_policy_is_asked_once_for_all_that_happens_at_one_time():
    policy = Scripted(CAPACITY_CHANGES)
    engine = Engine(cluster("1x4:V100"), policy, placer=first_fit)
    engine.state.jobs.declare([job(name) for name in "abc"])
    engine.step(0.0, [JobSubmitted(0.0, row) for row in range(3)])
    assert len(engine.decide_s) == 1


def test_the_policy_is_asked_only_after_what_it_wakes_on():
    policy = Scripted(frozenset((JobFinished,)))
    engine = Engine(cluster("1x4:V100"), policy, placer=first_fit)
    engine.state.jobs.declare([job("a")])
    engine.step(0.0, [JobSubmitted(0.0, 0)])
    assert len(engine.decide_s) == 0
    engine.step(5.0, [WokeUp(5.0)])
    assert len(engine.decide_s) == 1


def test_with_rounds_jobs_start_at_multiples_of_the_round():
    # a comes at 0, the first moment of a round; b at 5 and c at 60 wait for 60; d at 61 waits for 120.
    jobs = [job("a", 200.0), job("b", 200.0, at=5.0), job("c", 200.0, at=60.0), job("d", 200.0, at=61.0)]
    result = run(jobs, "1x4:V100", "fifo", round_s=60.0)
    assert result.to_frame()["start_s"].to_list() == [0, 60, 60, 120]


def test_a_job_that_comes_between_rounds_is_told_when_the_next_begins():
    policy = Scripted(CAPACITY_CHANGES)
    engine = Engine(cluster("1x4:V100"), policy, placer=first_fit, round_s=60.0)
    engine.state.jobs.declare([job("a", at=5.0)])
    engine.step(5.0, [JobSubmitted(5.0, 0)])
    reason = engine.reason(0)
    assert reason is not None
    assert (reason.code, reason.numbers["at_s"]) == (Why.NEXT_ROUND, 60.0)
    assert engine.wake_at == 60.0


def test_a_reason_can_be_asked_for_after_a_node_has_joined_between_rounds():
    jobs = [job("whole", gpus=2, at=0.0), job("head", gpus=4), job("part", gpu_frac=0.5)]
    engine = Engine(cluster("2x2:V100"), make_policy("fifo-backfill"), placer=first_fit, round_s=60.0)
    engine.state.jobs.declare(jobs)
    engine.step(0.0, [JobSubmitted(0.0, row) for row in range(3)])
    engine.step(10.0, [NodeAdded(10.0, node("new", 2))])
    for row in engine.state.waiting:
        assert str(engine.reason(row))


def test_everything_a_run_does_is_in_its_stays():
    result = run([job("a", 10.0), job("b", 5.0, at=2.0)], "1x1:V100")
    assert stays(result) == [("a", "n0", 0.0, 10.0), ("b", "n0", 10.0, 15.0)]


def test_nodes_and_jobs_that_are_not_there_are_neither_released_nor_stopped():
    engine = engine_with([job("x")], cluster("2x1:V100"))
    engine.take_in(0.0, [NodeRemoved(0.0, "n1")])
    for command in (Release(-1), Release(1), Release(9), Stop(-1), Stop(7)):
        with pytest.raises(InvalidDecisionError, match="there is no"):
            engine.order(0.0, (command,))
    assert engine.state.capacity.up == [True, False]
