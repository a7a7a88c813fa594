"""Any operations tried on a draft, with marks and rollbacks: what is sealed is what the engine then has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from audit import check_capacity, check_equal, check_jobs
from draft_plans import concrete, crowded, happenings, plans
from hypothesis import example, given, settings
from random_policy import LAYOUTS

from builders import HALVES, cluster, commands_of, engine_with, job, mig, node, on
from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import (
    Decision,
    Migrate,
    Provision,
    Rearrange,
    Release,
    Repartition,
    Resize,
    Resume,
    Start,
    Suspend,
)
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import DevicesClaimed, Event, JobStarted, JobSuspended, WokeUp
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import GIB
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay

THIRDS = LAYOUTS[1]
JOBS, NODES, DEVICES = 6, 4, 2
SHARES = (Sharing.EXCLUSIVE, Sharing.SHARED, Sharing.TIME_SLICE)


def busy() -> Engine:
    """Jobs 0 to 2 run, 3 is suspended, 4 and 5 wait; a GPU is cut."""
    nodes = cluster(*(node(f"n{number}", DEVICES, "A100", cpus=8.0) for number in range(NODES)))
    anywhere = {"sharing": frozenset((*SHARES, Sharing.MIG)), "min_gpus": 1, "max_gpus": 2, "cpus": 2.0}
    engine = engine_with([job(f"j{number}", 100.0, 1 + number % 2, **anywhere) for number in range(JOBS)], nodes)
    places = (None, None, None, on((2, 0)))
    engine.policy.script = [lambda draft: ([draft.start(*each) for each in enumerate(places)], draft.cut(2, 1, HALVES))]
    engine.step(0.0, [WokeUp(0.0)])
    engine.step(0.0, [JobStarted(0.0, row) for row in range(4)])
    engine.policy.script = [lambda draft: draft.suspend(3)]
    engine.step(1.0, [WokeUp(1.0)])
    engine.step(1.0, [JobSuspended(1.0, 3, 0.0)])
    return engine


def play(
    draft: Draft, plan: list[tuple[Any, ...]], meant: Callable[..., tuple[Any, ...]] | None = None
) -> list[tuple[Any, ...]]:
    """Tries everything; returns the operations that came about and were not rolled back.

    What an operation of the plan stands for at its turn, ``meant`` says.
    """
    done: list[tuple[Any, ...]] = []
    marks = [(draft.mark(), 0)]
    for what, *more in plan:
        if what == "mark":
            marks.append((draft.mark(), len(done)))
        elif what == "rollback":
            mark, count = marks.pop() if len(marks) > 1 else marks[0]
            draft.rollback(mark)
            del done[count:]
        else:
            if meant is not None:
                what, *more = meant(draft, what, *more)
            try:
                if getattr(draft, what)(*more) is not False:
                    done.append((what, *more))
            except (OverAllocationError, DraftError):
                pass
    return done


def free(capacity: Capacity) -> tuple[Any, ...]:
    """What is free, in a form that compares; slices in no order."""
    slices = {where: set(pieces) for where, pieces in capacity.free_slices.items()}
    return (
        list(capacity.idle), list(map(tuple, capacity.by_idle)), list(capacity.idle_total), list(capacity.up),
        dict(capacity.layouts), slices, capacity.free_cpus.tolist(), capacity.free_memory.tolist(),
        capacity.open_milli.tolist(), capacity.open_memory.tolist(), capacity.open_sharing.tolist(),
    )  # fmt: skip


CPUS_CLAIMED = DevicesClaimed(1.0, "n0", cpus=4.0)
MEMORY_CLAIMED = DevicesClaimed(1.0, "n0", memory_bytes=16.0 * GIB)
GIVEN_AWAY = [("suspend", 0), ("start", 2, (on((0, 1)), None, None)), ("keep", 0)]
"""Job 4 is given another GPU of the node of job 0, with CPUs and memory that job 0 would need to be kept."""
OVERDRAWN = DevicesClaimed(1.0, "n0", cpus=5.5)
GIVEN_AWAY_OF_TWO = [("suspend", 0), ("suspend", 1), ("start", 3, (on((0, 1)), None, None)), ("keep", 0)]
"""Of 8 CPUs others use 5.5 and jobs 0 and 2 have 4; job 4 finds 2 only while both of them are away."""


@settings(max_examples=300)
@given(happenings, plans)
@example([CPUS_CLAIMED], GIVEN_AWAY)
@example([MEMORY_CLAIMED], GIVEN_AWAY)
@example([OVERDRAWN], GIVEN_AWAY_OF_TWO)
def test_a_draft_is_what_is_left_of_it_and_the_engine_follows(
    happened: list[Event], plan: list[tuple[Any, ...]]
) -> None:
    engine = crowded(happened)
    view, untouched = engine.view, free(engine.state.capacity)
    draft = view.draft()
    done = play(draft, plan, concrete)
    again = view.draft()
    for what, *more in done:
        getattr(again, what)(*more)
    assert free(draft.capacity) == free(again.capacity)
    rows = range(len(engine.state.jobs))
    wanted = {row: draft.placement(row) for row in rows}
    assert wanted == {row: again.placement(row) for row in rows}
    assert draft.commands == again.commands
    assert free(engine.state.capacity) == untouched

    expected = free(draft.capacity)
    engine.policy.script = [lambda _: draft.seal()]
    engine.step(2.0, [WokeUp(2.0)])
    assert {row: engine.state.placed.get(row) for row in rows} == wanted
    assert free(engine.state.capacity) == expected
    check_capacity(engine.state)
    check_jobs(engine.state)
    check_equal(engine.state, replay(engine.journal.lines()))


def test_each_operation_can_be_undone() -> None:
    engine = busy()
    for plan in (
        [("start", 3, None)], [("suspend", 0)], [("suspend", 0), ("keep", 0)], [("move", 0, on((2, 0)))],
        [("resize", 0, 2)], [("swap", 0, 2)], [("rearrange", {0: on((2, 0))})],
        [("time_slice", 4, 30.0, [(2, 0)], 0.5)], [("cut", 2, 1, ())], [("provision", node("new", 1))],
        [("release", 2)], [("note", "seen", 0, 1.0)],
    ):  # fmt: skip
        draft = engine.view.draft()
        before = free(draft.capacity)
        mark = draft.mark()
        assert play(draft, plan) == plan
        draft.rollback(mark)
        assert free(draft.capacity) == before
        assert draft.seal().commands == draft.seal().notes == ()


A, B = on((2, 0)), on((3, 0))


@pytest.mark.parametrize(
    ("plan", "commands"),
    [
        ([("start", 4, A), ("move", 4, B)], [Start(4, B)]),
        ([("start", 3, A), ("move", 3, B)], [Resume(3, B)]),
        ([("start", 4, A), ("suspend", 4)], []),
        ([("suspend", 0), ("keep", 0)], []),
        ([("suspend", 0), ("start", 0, A)], [Migrate(0, A)]),
        ([("suspend", 1), ("start", 1, A)], [Resize(1, A)]),
        ([("move", 0, A), ("move", 0, B)], [Migrate(0, B)]),
        ([("move", 0, A), ("move", 0, on((0, 0)))], []),
        ([("move", 0, A), ("suspend", 0)], [Suspend(0)]),
        ([("swap", 0, 2), ("swap", 0, 2)], []),
        ([("swap", 0, 2)], [Rearrange(((0, on((0, 1))), (2, on((0, 0)))))]),
        ([("resize", 1, 1), ("resize", 1, 2)], []),
        ([("provision", node("new", 1)), ("release", 3)], [Provision(node("new", 1)), Release(3)]),
        ([("cut", 2, 1, ()), ("start", 4, on((2, 1)))], [Repartition(2, 1, ()), Start(4, on((2, 1)))]),
        ([("suspend", 0), ("start", 4, on((0, 0))), ("start", 0, A)], [Migrate(0, A), Start(4, on((0, 0)))]),
    ],
)
def test_several_operations_on_a_job_are_one_command(plan: list[tuple[Any, ...]], commands: list[Any]) -> None:
    engine = busy()
    assert engine.state.placed == {0: on((0, 0)), 1: on((1, 0), (1, 1)), 2: on((0, 1))}
    draft = engine.view.draft()
    assert play(draft, plan) == plan
    assert draft.commands == commands


def test_moves_that_wait_for_each_other_are_one_command() -> None:
    draft = busy().view.draft()
    draft.move(0, A)
    draft.move(2, on((0, 0)))
    draft.move(0, on((0, 1)))
    assert draft.commands == [Rearrange(((2, on((0, 0))), (0, on((0, 1)))))]


def test_a_job_cannot_leave_a_gpu_for_a_cut_and_return_in_one_decision() -> None:
    engine = busy()
    engine.policy.script = [lambda draft: draft.start(4, mig(2, 1, 0))]
    engine.step(1.0, [WokeUp(1.0)])
    draft = engine.view.draft()
    draft.suspend(4)
    draft.cut(2, 1, THIRDS)
    before = free(draft.capacity)
    with pytest.raises(DraftError, match="'j4' would have to leave a GPU so that it can be repartitioned"):
        draft.start(4, mig(2, 1, 0))
    assert free(draft.capacity) == before
    assert draft.commands == [Suspend(4), Repartition(2, 1, THIRDS)]


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (("suspend", 4), "has no GPUs"),
        (("move", 4, A), "has no GPUs"),
        (("keep", 0), "is not suspended in this draft"),
        (("start", 0, A), "has GPUs already"),
        (("release", 0), "has jobs on it"),
        (("time_slice", 4, 30.0), "say which devices"),
        (("time_slice", 4, -1.0, [(2, 0)]), "not a time slice"),
        (("rollback", 3), "no mark 3"),
    ],
)
def test_what_makes_no_sense_is_refused(plan: tuple[Any, ...], error: str) -> None:
    draft = busy().view.draft()
    with pytest.raises(DraftError, match=error):
        getattr(draft, plan[0])(*plan[1:])
    assert draft.commands == []


def test_jobs_take_turns_by_a_quantum() -> None:
    engine = busy()

    def share(draft: Draft) -> None:
        draft.time_slice(0, 30.0, share=0.5)
        draft.time_slice(4, 30.0, [(0, 0)], 0.5)

    engine.policy.script = [share]
    commands = commands_of(engine, 2.0, WokeUp(2.0))
    half = on((0, 0), sharing=Sharing.TIME_SLICE, milli=500)._replace(quantum_s=30.0)
    assert commands == [Migrate(0, half), Start(4, half)]
    assert isinstance(engine.view.draft().seal(), Decision)


def test_many_cuts_are_not_put_in_order_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is in question only where a job was touched twice."""
    asked = []
    monkeypatch.setattr("gpuwise.core.decision.draft.commands_of", lambda *args: asked.append(args) or [])
    draft = engine_with([job("a")], cluster("50x2:A100")).view.draft()
    for number in range(100):
        draft.cut(number // 2, number % 2, HALVES)
    assert not asked
    draft.seal()
    assert len(asked) == 1
