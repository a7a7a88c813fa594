"""Jobs with roles: what their tasks take of nodes, and how a draft changes their number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Scripted, capacity_of, cluster, engine_with, job, node, shapes_of
from gpuwise.core.assignments import Assignment
from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import Distance
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Command, Grant, Placement, Resize, Start, TaskGrant, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.reasons import explain_room
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import JobStarted, JobSubmitted, NodeRemoved, WokeUp
from gpuwise.core.job.needs import Role
from gpuwise.core.job.shape import Shape, counts_for, task_counts, with_counts, wrong_tasks
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import placement_of, plain, replay
from gpuwise.engine.snapshot import restore, snapshot
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.placing.roles import with_roles

PLACE = with_roles(best_fit)


def gang(*roles: Role, id: str = "gang", **more: Any) -> JobSpec:
    """A job of some roles; its GPUs follow from them."""
    low, high = (sum(role.count_range[end] * role.gpus for role in roles) for end in (0, 1))
    gpus = sum(role.count * role.gpus for role in roles)
    return job(id, gpus=gpus, min_gpus=low, max_gpus=high, roles=roles, **more)


def worker(count: int = 2, **more: Any) -> Role:
    return Role("worker", **{"count": count, "gpus": 1, "cpus": 2.0, "memory_bytes": 4.0 * GIB, **more})


def ps(count: int = 1, **more: Any) -> Role:
    return Role("ps", **{"count": count, "cpus": 3.0, "memory_bytes": 8.0 * GIB, **more})


def machines(gpus: int = 2, cpus: int = 1) -> ClusterSpec:
    """Nodes with two GPUs each and 8 CPUs, and nodes with 16 CPUs and no GPU."""
    with_gpus = [node(f"g{at}", 2, cpus=8.0, memory_bytes=64.0 * GIB) for at in range(gpus)]
    without = [node(f"c{at}", 0, "", cpus=16.0, memory_bytes=64.0 * GIB) for at in range(cpus)]
    return cluster(*with_gpus, *without)


def engine_for(jobs: list[JobSpec], spec: ClusterSpec) -> tuple[Engine, Scripted]:
    policy = Scripted(frozenset((JobSubmitted, JobStarted)))
    engine = Engine(spec, policy, placer=PLACE)
    for row in engine.state.jobs.declare(jobs):
        engine.step(0.0, [JobSubmitted(0.0, row)])
    return engine, policy


def decided(engine: Engine, policy: Scripted, script: Any) -> list[Command]:
    """What an engine does when its policy follows a script."""
    policy.script = [script]
    before = len(engine.journal.records)
    engine.step(0.0, [WokeUp(0.0)])
    return [each for each in engine.journal.records[before:] if isinstance(each, Command)]


# -- what tasks take ---------------------------------------------------------------------------------------------------


def free_of(capacity: Capacity) -> tuple[Any, ...]:
    return (list(capacity.idle), capacity.free_cpus.tolist(), capacity.free_memory.tolist(), list(capacity.idle_total))


def test_each_task_takes_its_own_needs_where_it_is() -> None:
    capacity = capacity_of(machines())
    (shape,) = shapes_of(gang(worker(3), ps(2)))
    placement = Placement(
        (Grant(0, 0b11), Grant(1, 0b01)),
        tasks=(TaskGrant("worker", 0, 2), TaskGrant("worker", 1, 1), TaskGrant("ps", 1, 1), TaskGrant("ps", 2, 1)),
    )
    capacity.take(placement, shape)
    # 2 workers · 2 CPUs; 1 worker · 2 + 1 ps · 3; 1 ps · 3
    assert capacity.free_cpus.tolist() == [8.0 - 4.0, 8.0 - 5.0, 16.0 - 3.0]
    assert (capacity.free_memory / GIB).tolist() == [64.0 - 8.0, 64.0 - 12.0, 64.0 - 8.0]
    assert placement.nodes == (0, 1, 2)
    capacity.give(placement, shape)
    assert free_of(capacity) == free_of(capacity_of(machines()))


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((), "0 tasks of role 'worker'"),
        ((TaskGrant("worker", 0, 2),), "0 tasks of role 'ps', which has 1 to 1"),
        ((TaskGrant("worker", 0, 1), TaskGrant("ps", 2, 1)), "1 tasks of role 'worker', which has 2 to 2"),
        ((TaskGrant("worker", 1, 2), TaskGrant("ps", 2, 1)), "tasks on node 1 need 2 GPUs more"),
        ((TaskGrant("worker", 0, 2), TaskGrant("ps", 2, 1), TaskGrant("x", 0, 1)), "1 tasks of 'x'"),
        ((TaskGrant("worker", 0, 2), TaskGrant("ps", 9, 1)), "9 is not the row of a node in service"),
    ],
)
def test_tasks_that_do_not_make_the_job_are_refused_and_change_nothing(
    tasks: tuple[TaskGrant, ...], message: str
) -> None:
    capacity = capacity_of(machines())
    (shape,) = shapes_of(gang(worker(2), ps(1)))
    with pytest.raises(OverAllocationError, match=message):
        capacity.take(Placement((Grant(0, 0b11),), tasks=tasks), shape)
    assert free_of(capacity) == free_of(capacity_of(machines()))


def test_tasks_that_need_more_than_is_left_are_refused() -> None:
    capacity = capacity_of(machines())
    (shape,) = shapes_of(gang(worker(2), ps(6)))
    crowded = Placement((Grant(0, 0b11),), tasks=(TaskGrant("worker", 0, 2), TaskGrant("ps", 2, 6)))
    with pytest.raises(OverAllocationError, match="node c0: 18 CPUs"):  # of 16
        capacity.take(crowded, shape)
    assert free_of(capacity) == free_of(capacity_of(machines()))


roles = st.builds(
    lambda count, gpus, cpus, memory: {"count": count, "gpus": gpus, "cpus": cpus, "memory_bytes": memory * GIB},
    st.integers(1, 4), st.integers(0, 2), st.integers(0, 30).map(lambda tenths: tenths / 10), st.floats(0, 5),
)  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 16)), min_size=1, max_size=6),
    st.lists(st.lists(roles, min_size=1, max_size=3), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_what_gangs_take_comes_back_to_the_start(
    nodes: list[tuple[int, int]], jobs: list[list[dict[str, Any]]], random: Any
) -> None:
    spec = cluster(*(node(f"n{at}", gpus, cpus=cpus, memory_bytes=32.0 * GIB) for at, (gpus, cpus) in enumerate(nodes)))
    capacity = capacity_of(spec)
    placed: list[tuple[Placement, Shape]] = []
    for given_roles in jobs:
        (shape,) = shapes_of(gang(*(Role(f"r{at}", **each) for at, each in enumerate(given_roles))))
        found = PLACE(capacity, shape, shape.gpus)
        if found is not None:
            assert wrong_tasks(found, shape) == ""
            capacity.take(found, shape)  # raises if it is not free
            placed.append((found, shape))
        if placed and random.random() < 0.3:
            held = random.choice(placed)
            before = free_of(capacity)
            capacity.give(*held)
            capacity.retake(*held)
            np.testing.assert_array_equal(free_of(capacity)[1], before[1])
    assert (capacity.free_cpus >= 0).all()
    random.shuffle(placed)
    for held in placed:
        capacity.give(*held)
    before = free_of(capacity_of(spec))
    assert free_of(capacity)[0] == before[0]
    np.testing.assert_array_equal(free_of(capacity)[1], before[1])
    np.testing.assert_array_equal(free_of(capacity)[2], before[2])


# -- the engine --------------------------------------------------------------------------------------------------------


def test_an_executor_is_told_the_tasks_by_the_names_of_their_nodes() -> None:
    engine, policy = engine_for([gang(worker(2), ps(2, cpus=6.0))], machines())
    policy.script = [lambda draft: draft.start(0)]
    (wanted,) = engine.addressed(engine.step(0.0, [WokeUp(0.0)]))
    assert isinstance(wanted, Assignment)
    assert wanted.tasks == (("worker", "g0", 2), ("ps", "g1", 1), ("ps", "c0", 1))
    assert engine.view.tasks(0) == {"worker": 2, "ps": 2}


def test_a_plain_job_has_no_tasks() -> None:
    engine, policy = engine_for([job("plain")], machines())
    policy.script = [lambda draft: draft.start(0)]
    (wanted,) = engine.addressed(engine.step(0.0, [WokeUp(0.0)]))
    assert isinstance(wanted, Assignment)
    assert (wanted.tasks, engine.view.tasks(0)) == ((), {})


@pytest.mark.parametrize(
    "placement",
    [
        Placement((Grant(0, 0b11),)),
        Placement((Grant(0, 0b11),), tasks=(TaskGrant("worker", 0, 2),)),
        Placement((Grant(0, 0b11),), tasks=(TaskGrant("worker", 0, 2), TaskGrant("ps", 7, 1))),
        Placement((Grant(0, 0b11),), tasks=(TaskGrant("worker", 0, 2), TaskGrant("ps", -1, 1))),
        Placement(
            (Grant(0, 0b11),), tasks=(TaskGrant("worker", 0, 1), TaskGrant("worker", 1, 1), TaskGrant("ps", 2, 1))
        ),
    ],
)
def test_a_gang_that_is_not_whole_is_an_invalid_decision(placement: Placement) -> None:
    engine, _ = engine_for([gang(worker(2), ps(1))], machines())
    with pytest.raises(InvalidDecisionError):
        engine.order(0.0, [Start(0, placement)])
    assert free_of(engine.state.capacity) == free_of(capacity_of(machines()))


def test_tasks_are_not_for_a_plain_job() -> None:
    engine, _ = engine_for([job("plain")], machines())
    with pytest.raises(InvalidDecisionError, match="not tasks of a role that the job has"):
        engine.order(0.0, [Start(0, Placement((Grant(0, 1),), tasks=(TaskGrant("worker", 0, 1),)))])


def test_a_gang_loses_its_place_with_the_node_of_its_parameter_server() -> None:
    engine, policy = engine_for([gang(worker(2), ps(1, cpus=10.0))], machines())
    decided(engine, policy, lambda draft: draft.start(0))
    assert engine.state.placed[0].nodes == (0, 2)
    engine.step(1.0, [NodeRemoved(1.0, "c0")])
    assert not engine.state.placed
    assert engine.state.capacity.free_cpus.tolist() == [8.0, 8.0, 0.0]


def test_journal_and_snapshot_carry_tasks_and_old_lines_have_none() -> None:
    engine, policy = engine_for([gang(worker(2), ps(1)), job("plain")], machines())
    decided(engine, policy, lambda draft: (draft.start(0), draft.start(1)))
    lines = list(engine.journal.lines())
    starts = [json.loads(line)["placement"] for line in lines if '"Start"' in line]
    assert starts[0]["tasks"] == [["worker", 0, 2], ["ps", 0, 1]]
    assert "tasks" not in starts[1]
    assert placement_of(starts[1]).tasks == ()
    placement = engine.state.placed[0]
    assert placement_of(json.loads(json.dumps(plain(placement)))) == placement
    again = replay(lines)
    assert again.placed == engine.state.placed
    assert free_of(again.capacity) == free_of(engine.state.capacity)
    fresh = Engine(machines(), Scripted(), placer=PLACE)
    restore(fresh.state, json.loads(json.dumps(snapshot(engine.state))))
    assert list(fresh.state.placed.values()) == list(engine.state.placed.values())
    assert free_of(fresh.state.capacity) == free_of(engine.state.capacity)


def test_a_job_without_room_for_its_parameter_servers_says_which_role_lacks_what() -> None:
    engine, _ = engine_for([gang(worker(2), ps(4, cpus=9.0))], machines())
    reason = explain_room(engine.state, 0)
    assert reason.code is Why.NO_TASK_ROOM
    assert str(reason) == "needs 4 × ps, each with 9 CPUs and 8 GiB of memory; there is room for 1 of them"


# -- elastic roles -----------------------------------------------------------------------------------------------------

ELASTIC = (worker(2, min_count=1, max_count=3), ps(1, min_count=1, max_count=2))


def test_gpus_say_how_many_tasks_one_elastic_role_has() -> None:
    (shape,) = shapes_of(gang(*ELASTIC))
    assert counts_for(shape, 2) == {"worker": 2, "ps": 1}
    assert counts_for(shape, 3) == {"worker": 3, "ps": 1}
    assert counts_for(shape, 4) is None
    (two,) = shapes_of(gang(worker(2, gpus=2, min_count=1, max_count=3)))
    assert (counts_for(two, 2), counts_for(two, 3)) == ({"worker": 1}, None)
    assert with_counts(shape, {"worker": 3}).gpus == 3


def resized(change: Any) -> tuple[Engine, list[Command]]:
    engine, policy = engine_for([gang(*ELASTIC)], machines())
    decided(engine, policy, lambda draft: draft.start(0))
    return engine, decided(engine, policy, change)


def test_resizing_by_gpus_resizes_the_elastic_role() -> None:
    engine, (command,) = resized(lambda draft: draft.resize(0, 3))
    assert isinstance(command, Resize)
    assert engine.view.tasks(0) == {"worker": 3, "ps": 1}


def test_roles_are_resized_by_name_and_the_others_stay() -> None:
    engine, (command,) = resized(lambda draft: (draft.resize(0, 3), draft.resize_roles(0, {"ps": 2})))
    assert isinstance(command, Resize)
    assert engine.view.tasks(0) == {"worker": 3, "ps": 2}


def test_more_parameter_servers_on_as_many_gpus_are_a_resize() -> None:
    engine, (command,) = resized(lambda draft: draft.resize_roles(0, {"ps": 2}))
    assert isinstance(command, Resize)
    assert engine.state.jobs.resizes.item(0) == 1


def test_resizing_roles_can_be_undone() -> None:
    def script(draft: Draft) -> None:
        before = free_of(draft.capacity)
        mark = draft.mark()
        assert draft.resize_roles(0, {"worker": 3, "ps": 2})
        assert free_of(draft.capacity) != before
        draft.rollback(mark)
        assert free_of(draft.capacity) == before

    engine, commands = resized(script)
    assert not commands
    assert engine.view.tasks(0) == {"worker": 2, "ps": 1}


def test_roles_cannot_be_resized_beyond_their_range_or_room() -> None:
    def script(draft: Draft) -> None:
        with pytest.raises(DraftError, match="count is 4"):
            draft.resize_roles(0, {"worker": 4})
        with pytest.raises(DraftError, match="one of worker, ps"):
            draft.resize_roles(0, {"chief": 1})
        assert not draft.resize(0, 4)

    assert not resized(script)[1]
    engine, policy = engine_for([gang(*ELASTIC)], machines(gpus=1))
    decided(engine, policy, lambda draft: draft.start(0))
    assert not decided(engine, policy, lambda draft: draft.resize(0, 3))
    assert engine.view.tasks(0) == {"worker": 2, "ps": 1}


# -- where tasks go ----------------------------------------------------------------------------------------------------


def placed(spec: ClusterSpec, asked: JobSpec) -> dict[str, dict[str, int]]:
    """How many tasks of which role are on which node; nothing if there is no room."""
    capacity = capacity_of(spec)
    (shape,) = shapes_of(asked)
    found = PLACE(capacity, shape, shape.gpus)
    if found is None:
        return {}
    capacity.take(found, shape)
    made: dict[str, dict[str, int]] = {}
    for role, row, number in found.tasks:
        made.setdefault(role, {})[spec.nodes[row].name] = number
    return made


def test_parameter_servers_are_beside_the_workers_where_there_is_room() -> None:
    assert placed(machines(), gang(worker(2), ps(1))) == {"worker": {"g0": 2}, "ps": {"g0": 1}}


def test_parameter_servers_that_find_no_room_there_are_as_near_as_can_be() -> None:
    def at(name: str, gpus: int, rack: str) -> Any:
        return node(name, gpus, cpus=4.0, memory_bytes=64.0 * GIB, labels=(("rack", rack),))

    spec = cluster(at("far", 0, "r1"), at("g0", 2, "r0"), at("near", 0, "r0"))
    assert placed(spec, gang(worker(2), ps(1))) == {"worker": {"g0": 2}, "ps": {"near": 1}}
    assert placed(spec, gang(worker(2), ps(2))) == {"worker": {"g0": 2}, "ps": {"near": 1, "far": 1}}
    assert placed(spec, gang(worker(2), ps(3))) == {}
    assert capacity_of(spec).nodes.distance((1, 0), (2, 0)) is Distance.RACK
    assert placed(spec, gang(worker(2), ps(1), require=(("rack", ("r1",)),))) == {}
    assert placed(spec, gang(worker(2), ps(2), within="rack")) == {}
    assert placed(spec, gang(worker(2), ps(1), within="rack")) == {"worker": {"g0": 2}, "ps": {"near": 1}}
    assert placed(spec, gang(worker(2), ps(1), within="node")) == {}
    assert placed(spec, gang(worker(1), ps(1, cpus=2.0), within="node")) == {"worker": {"g0": 1}, "ps": {"g0": 1}}


def test_the_gpus_of_a_task_are_on_one_node() -> None:
    spec = cluster(*(node(f"n{at}", 3, cpus=8.0) for at in range(3)))
    assert placed(spec, gang(worker(3, gpus=2))) == {"worker": {"n0": 1, "n1": 1, "n2": 1}}
    assert placed(spec, gang(worker(4, gpus=2))) == {}
    chief = Role("chief", 1, gpus=3)
    assert placed(spec, gang(worker(2, gpus=2), chief)).keys() == {"worker", "chief"}


def test_workers_count_their_own_cpus_only() -> None:
    spec = cluster(node("n0", 4, cpus=4.0), node("n1", 4, cpus=4.0), node("cpu", 0, "", cpus=100.0))
    assert placed(spec, gang(worker(2), ps(1, cpus=50.0))) == {"worker": {"n0": 2}, "ps": {"cpu": 1}}


def test_a_job_whose_roles_have_no_gpus_has_nodes_all_the_same() -> None:
    spec = machines(gpus=1, cpus=2)
    assert placed(spec, gang(ps(4, cpus=8.0))) == {"ps": {"c0": 2, "c1": 2}}
    (shape,) = shapes_of(gang(ps(4, cpus=8.0)))
    found = PLACE(capacity_of(spec), shape, 0)
    assert found is not None
    assert found.grants == (Grant(1, 0), Grant(2, 0))


def test_plain_jobs_are_placed_as_before() -> None:
    capacity = capacity_of(machines())
    (shape,) = shapes_of(job("x", gpus=2))
    assert PLACE(capacity, shape, 2) == best_fit(capacity, shape, 2)
    assert with_roles(PLACE) is PLACE


def test_counts() -> None:
    assert task_counts([TaskGrant("a", 0, 2), TaskGrant("b", 0, 1), TaskGrant("a", 1, 1)]) == {"a": 3, "b": 1}
    assert engine_with([], machines()).view.capacity.free_cpus.tolist() == [8.0, 8.0, 16.0]


def test_tasks_of_a_gang_have_gpus_of_one_type_also_where_types_differ_in_memory_or_speed_only():
    gang = job("a", gpus=4, roles=(Role("w", count=2, gpus=2),))
    for other in (node("b", 2, gpu_memory_bytes=32e9), node("b", 2, gpu_memory_bytes=16e9, speed=2.0)):
        two = cluster(node("a", 2, gpu_memory_bytes=16e9), other)
        assert with_roles(best_fit)(capacity_of(two), shapes_of(gang)[0], 4) is None
