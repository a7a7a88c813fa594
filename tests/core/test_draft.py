"""The draft: what is tried can be taken back, and leaves the cluster as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_capacity import snapshot

from builders import HALVES, cluster, commands_of, draft_with, engine_with, job, mig, node, on
from gpuwise.core.commands import Migrate, Rearrange, Release, Resize, Resume, Start, Suspend
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import DevicesClaimed, JobHeld, JobStarted, JobSubmitted, JobSuspended, NodeChanged, WokeUp
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay
from gpuwise.engine.snapshot import snapshot as document


def running(*gpus: int, nodes: str = "2x4:V100", **more: object) -> Engine:
    """Jobs of so many GPUs that all run, by first fit."""
    engine = engine_with([job(f"r{i}", 100.0, count, **more) for i, count in enumerate(gpus)], cluster(nodes))
    engine.policy.script = [lambda draft: [draft.start(row) for row in range(len(gpus))]]
    engine.step(0.0, [WokeUp(0.0)])
    engine.step(0.0, [JobStarted(0.0, row) for row in engine.state.placed])
    assert len(engine.state.placed) == len(gpus)
    return engine


def decide(engine: Engine, script: object) -> list[object]:
    """What the engine does about a decision made by a script."""
    engine.policy.script = [script]
    now_s = engine.state.now_s
    return list(commands_of(engine, now_s, WokeUp(now_s)))


def submit(engine: Engine, gpus: int) -> None:
    """One more job comes."""
    (row,) = engine.state.jobs.declare([job(f"waits for {gpus}", gpus=gpus)])
    engine.step(0.0, [JobSubmitted(0.0, row)])


def test_starts_take_from_the_draft_and_not_from_the_cluster():
    draft = draft_with([job("a", gpus=4), job("b", gpus=3)], cluster("2x4:V100"))
    assert draft.start(0)
    assert draft.start(1)
    assert draft.commands == [Start(0, on((0, 0), (0, 1), (0, 2), (0, 3))), Start(1, on((1, 0), (1, 1), (1, 2)))]
    assert draft.capacity.idle_total == [1]
    assert draft.view.capacity.idle_total == [8]
    assert draft.started() == [0, 1]
    assert draft.placement(1) == on((1, 0), (1, 1), (1, 2))


def test_a_shape_that_does_not_fit_is_closed_until_something_is_freed():
    engine = running(3, 4)
    submit(engine, 2)
    draft = engine.view.draft()
    assert not draft.start(2)
    assert draft.closed == {engine.state.jobs.shape.item(2)}
    assert list(draft.waiting()) == []
    draft.suspend(0)
    assert list(draft.waiting()) == [2]
    assert draft.start(2)


def test_a_suspended_job_is_resumed_and_not_started():
    engine = running(2)
    decide(engine, lambda draft: draft.suspend(0))
    engine.step(0.0, [JobSuspended(0.0, 0, 5.0)])
    assert decide(engine, lambda draft: draft.start(0)) == [Resume(0, on((0, 0), (0, 1)))]


@pytest.mark.parametrize("first", [True, False], ids=["first command", "later command"])
def test_a_placement_that_is_not_free_is_refused_at_once(first: bool):
    draft = draft_with([job("a"), job("b")], cluster("1x2:V100"))
    if not first:
        draft.start(1)
    commands = list(draft.commands)
    with pytest.raises(OverAllocationError):
        draft.start(0, on((0, 5)))
    assert draft.commands == commands
    assert draft.placement(0) is None


actions = st.lists(st.tuples(st.sampled_from(["start", "suspend"]), st.integers(0, 5)), max_size=12)


@given(actions, actions)
def test_rolling_back_restores_what_was_at_the_mark(before: list[tuple[str, int]], after: list[tuple[str, int]]):
    engine = running(2, 3, 1)
    for gpus in (1, 2, 4):
        submit(engine, gpus)
    draft = engine.view.draft()
    touched: set[int] = set()
    play(draft, before, touched)
    mark, known = (
        draft.mark(),
        (snapshot(draft.capacity), list(draft.commands), [draft.placement(row) for row in range(6)]),
    )
    play(draft, after, set(touched))
    draft.rollback(mark)
    assert (snapshot(draft.capacity), draft.commands, [draft.placement(row) for row in range(6)]) == known
    assert snapshot(engine.state.capacity)["idle_total"] == "[2]"


def play(draft: Draft, steps: list[tuple[str, int]], touched: set[int]) -> None:
    """Each job gets at most one command."""
    for what, row in steps:
        if row in touched:
            continue
        if what == "suspend" and row in draft.view.placed:
            draft.suspend(row)
            touched.add(row)
        elif what == "start" and row in draft.view.waiting and draft.start(row):
            touched.add(row)


def test_rolling_back_a_suspension_of_a_moved_job_leaves_it_where_it_was_moved():
    draft = running(2).view.draft()
    draft.move(0, on((1, 0), (1, 1)))
    known = snapshot(draft.capacity)
    mark = draft.mark()
    draft.suspend(0)
    draft.rollback(mark)
    assert draft.placement(0) == on((1, 0), (1, 1))
    assert snapshot(draft.capacity) == known


def test_a_suspension_is_taken_back_if_nobody_got_the_gpus_meanwhile():
    engine = running(2, 2, 4)
    submit(engine, 1)
    draft = engine.view.draft()
    before = snapshot(draft.capacity)
    draft.suspend(0)
    draft.suspend(1)
    assert draft.keep(0)
    assert draft.commands == [Suspend(1)]
    assert draft.placement(0) == engine.state.placed[0]
    assert draft.start(3)
    assert not draft.keep(1)
    assert draft.commands == [Suspend(1), Start(3, on((0, 2)))]
    draft.rollback(0)
    assert snapshot(draft.capacity) == before


def test_a_move_with_as_many_gpus_is_a_migration_and_with_others_a_resize():
    engine = running(2, min_gpus=1, max_gpus=4)
    commands = decide(engine, lambda draft: draft.move(0, on((1, 0), (1, 1))))
    assert commands == [Migrate(0, on((1, 0), (1, 1)))]
    engine.step(0.0, [JobStarted(0.0, 0)])
    assert decide(engine, lambda draft: draft.move(0, on((1, 0)))) == [Resize(0, on((1, 0)))]
    assert engine.state.jobs.migrations[0] == engine.state.jobs.resizes[0] == 1


def test_a_job_may_move_to_devices_it_holds_in_part():
    draft = running(3).view.draft()
    draft.move(0, on((0, 1), (0, 2), (0, 3)))
    assert draft.capacity.idle[0] == 0b0001


def test_a_move_that_does_not_fit_is_refused_and_changes_nothing():
    draft = running(4, 2).view.draft()
    before = snapshot(draft.capacity)
    with pytest.raises(OverAllocationError):
        draft.move(1, on((0, 0), (0, 1)))
    assert snapshot(draft.capacity) == before
    assert draft.commands == []


def test_two_jobs_change_places():
    engine = running(4, 4)
    here, there = engine.state.placed[0], engine.state.placed[1]
    with pytest.raises(OverAllocationError):
        engine.view.draft().move(0, there)
    assert decide(engine, lambda draft: draft.rearrange({0: there, 1: here})) == [Rearrange(((0, there), (1, here)))]
    assert (engine.state.placed[0], engine.state.placed[1]) == (there, here)
    assert engine.state.jobs.migrations[:2].tolist() == [1, 1]
    assert engine.state.status(0) is Status.STARTING


def test_a_rearrangement_that_does_not_fit_is_refused_and_changes_nothing():
    draft = running(4, 2).view.draft()
    before = snapshot(draft.capacity)
    with pytest.raises(OverAllocationError):
        draft.rearrange({0: on((1, 0), (1, 1), (1, 2), (1, 3)), 1: on((1, 0), (1, 1))})
    assert snapshot(draft.capacity) == before
    assert draft.commands == []


def test_an_idle_device_is_cut_and_its_slices_are_given_out():
    engine = engine_with([job("a", gpu_frac=0.4), job("b", gpu_frac=0.4)], cluster("1x1:A100"))

    def cut_and_start(draft: Draft) -> None:
        draft.cut(0, 0, HALVES)
        draft.start(0, mig(0, 0, 0))
        draft.start(1, mig(0, 0, 4))

    decide(engine, cut_and_start)
    assert engine.state.capacity.free_slices[0, 0] == ()
    assert engine.state.placed[1].sharing is Sharing.MIG
    with pytest.raises(OverAllocationError, match="in use"):
        engine.view.draft().cut(0, 0, ())


def test_a_view_shows_submitted_jobs_only_and_refuses_writes():
    engine = engine_with([job("a"), job("b")], cluster("1x2:V100"))
    engine.state.jobs.declare([job("not submitted yet")])
    column = engine.view.column("submit_s")
    assert len(column) == 2
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1.0


def test_time_left_is_as_declared_while_waiting_and_by_the_rate_while_running():
    engine = engine_with([job("a", 100.0, 2, steps=400.0, min_gpus=1)], cluster("1x2:V100"))
    assert engine.view.time_left_s(0) == 100.0
    decide(engine, lambda draft: draft.start(0, on((0, 0))))
    engine.step(0.0, [JobStarted(0.0, 0)])
    # 400 steps in 100 s on two GPUs: 4 steps a second, so 2 a second on one, and 400 / 2 = 200 s.
    assert engine.view.time_left_s(0) == 200.0
    engine.step(50.0, [])
    assert engine.view.time_left_s(0) == 150.0
    assert engine.view.attained_gpu_s(0) == 50.0


def test_a_suspension_is_not_undone_when_its_cpus_were_given_to_another():
    machine = node("n", 2, cpus=8.0)
    engine = engine_with([job("a", cpus=4.0), job("b", cpus=4.0), job("c", cpus=6.0)], cluster(machine))
    engine.order(0.0, (Start(0, on((0, 0))), Start(1, on((0, 1)))))
    draft = engine.view.draft()
    draft.suspend(0)
    draft.suspend(1)
    assert draft.start(2)
    assert not draft.keep(0)  # six of eight CPUs are given away
    assert draft.placement(0) is None


def test_to_keep_a_job_does_not_take_what_others_use_of_the_host():
    # 8 CPUs, of which strangers use 4 and a job 4: once it is suspended and its CPUs are given away, nothing is left.
    engine = engine_with([job("a", cpus=4.0), job("b", cpus=4.0)], cluster(node("n0", 2, cpus=8.0)))
    engine.order(0.0, (Start(0, on((0, 0))),))
    engine.step(0.0, [JobStarted(0.0, 0), DevicesClaimed(0.0, "n0", cpus=4.0)])
    draft = engine.view.draft()
    draft.suspend(0)
    assert draft.start(1)
    assert not draft.keep(0)
    assert draft.commands == [Suspend(0), Start(1, on((0, 0)))]


def test_a_move_to_where_a_job_is_already_is_none():
    engine = running(1, 1)
    engine.step(0.0, [NodeChanged(0.0, replace(engine.state.nodes.specs[0], schedulable=False))])
    held = engine.state.placed

    def script(draft: Draft) -> None:
        draft.move(0, held[0])
        draft.rearrange({1: held[1]})

    assert decide(engine, script) == []
    both = running(1, 1)
    assert decide(both, lambda draft: draft.rearrange({0: on((1, 0)), 1: held[1]})) == [Migrate(0, on((1, 0)))]


def test_jobs_may_be_named_by_entries_of_an_array():
    engine = running(1, 1)

    def script(draft: Draft) -> None:
        first, second = np.sort(draft.view.placed_jobs())
        draft.suspend(first)
        draft.move(second, on((1, 0)))
        draft.start(first, on((1, 1)))

    assert decide(engine, script)
    replayed = replay(engine.journal.lines())
    assert replayed.placed == engine.state.placed
    json.dumps(document(engine.state))


def test_a_node_that_a_job_is_leaving_is_not_released():
    engine = running(1, 1, suspend_s=5.0)
    decide(engine, lambda draft: (draft.suspend(0), draft.suspend(1)))
    with pytest.raises(DraftError, match="leaving it"):
        engine.view.draft().release(0)
    with pytest.raises(InvalidDecisionError, match="leaving it"):
        engine.order(engine.state.now_s, (Release(0),))
    other = running(1)
    draft = other.view.draft()
    draft.suspend(0)
    with pytest.raises(DraftError, match="leaving it"):
        draft.release(0)


def test_only_jobs_that_wait_are_started():
    engine = engine_with([job("a"), job("b")], cluster("1x2:V100"))
    engine.step(0.0, [JobHeld(0.0, 0, "by its user")])
    draft = engine.view.draft()
    with pytest.raises(DraftError, match="'a' is not waiting"):
        draft.start(0)
    assert draft.start(1)


def test_to_keep_a_job_that_was_started_in_the_same_draft_it_must_find_room_as_when_it_was_started():
    # 30 CPUs, 20 + 5 in use, and strangers claim 15 afterwards: nobody new fits beside the first.
    jobs = [job("a", cpus=20.0), job("b", cpus=5.0), job("new", cpus=5.0)]
    engine = engine_with(jobs, cluster(node("n0", 3, cpus=30.0)))
    engine.order(0.0, (Start(0, on((0, 0))), Start(1, on((0, 1)))))
    engine.step(0.0, [JobStarted(0.0, 0), JobStarted(0.0, 1), DevicesClaimed(0.0, "n0", cpus=15.0)])

    def script(draft: Draft) -> None:
        draft.suspend(0)
        draft.suspend(1)
        assert draft.start(2, on((0, 2)))
        draft.suspend(2)
        assert draft.keep(0)
        assert not draft.keep(2)

    assert decide(engine, script) == [Suspend(1)]
