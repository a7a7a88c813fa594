"""Nodes that come, change and go: who stays, who is requeued, and that saying things twice changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from audit import check_capacity, check_equal, check_jobs, check_neighbours

from builders import HALVES, cluster, engine_with, job, mig, node, on
from gpuwise.core.assignments import NodeRequest
from gpuwise.core.commands import Provision, Release, Repartition, Start
from gpuwise.core.events import (
    DeviceLost,
    DeviceRestored,
    DevicesClaimed,
    Event,
    JobStarted,
    JobSuspended,
    NodeAdded,
    NodeChanged,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    ReleaseRefused,
    WokeUp,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import GIB
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay, replay_onto
from gpuwise.engine.snapshot import cluster_of, restore, snapshot

IDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
BOX = node("box", 4, device_ids=IDS, uid="m1", cpus=8.0, gpu_memory_bytes=16.0 * GIB)


def running(*specs: Any, placements: list[Any], nodes: Any = None) -> Engine:
    """An engine whose jobs run where they are put."""
    engine = engine_with(specs, nodes or cluster(BOX, node("other", 2)))
    engine.order(0.0, [Start(row, placement) for row, placement in enumerate(placements)])
    engine.step(1.0, [JobStarted(1.0, row) for row in range(len(placements))])
    return engine


def tell(engine: Engine, *events: Event) -> Engine:
    """Lets things happen; what must hold of a state holds after each, and the journal and a snapshot lead to it."""
    for event in events:
        engine.step(event.at_s, [event])
        check_capacity(engine.state)
        check_jobs(engine.state)
        check_neighbours(engine.state)
    check_equal(engine.state, replay(engine.journal.lines()))
    document = json.loads(json.dumps(snapshot(engine.state)))
    again = Engine(cluster_of(document), engine.policy, placer=engine.view.placer)
    restore(again.state, document)
    assert snapshot(again.state) == snapshot(engine.state)
    check_capacity(again.state)
    return engine


def statuses(engine: Engine) -> list[Status]:
    return [engine.state.status(row) for row in range(len(engine.state.jobs))]


def test_a_node_that_returns_under_its_name_has_its_row_again() -> None:
    engine = engine_with([job("a")], cluster(BOX, node("other", 2)))
    tell(engine, NodeRemoved(1.0, "box"), NodeAdded(2.0, BOX))
    assert engine.state.nodes.names == ["box", "other"]
    assert engine.state.capacity.idle == [0b1111, 0b11]


def test_a_node_told_of_twice_is_one_node() -> None:
    engine = tell(engine_with([], cluster(BOX)), NodeAdded(1.0, BOX), NodeAdded(2.0, node("new", 1)))
    tell(engine, NodeAdded(3.0, node("new", 1)))
    assert engine.state.nodes.names == ["box", "new"]


def test_a_known_gpu_type_with_another_memory_size_joins() -> None:
    engine = tell(engine_with([], cluster(BOX)), NodeAdded(1.0, node("big", 2, gpu_memory_bytes=32.0 * GIB)))
    assert engine.state.nodes.types == ["V100", "V100"]
    assert engine.state.capacity.idle_total == [4, 2]


def test_another_machine_under_the_same_name_requeues_the_jobs_of_the_first() -> None:
    engine = running(job("a", gpus=2), job("b"), placements=[on((0, 0), (0, 1)), on((1, 0))])
    tell(engine, NodeAdded(5.0, replace(BOX, uid="m2")))
    assert statuses(engine) == [Status.PENDING, Status.RUNNING]
    assert engine.state.nodes.names == ["box", "other"]


def test_jobs_stay_on_devices_that_stay_wherever_these_are_now() -> None:
    engine = running(job("a"), job("b", gpus=2), job("c"), placements=[on((0, 0)), on((0, 1), (0, 2)), on((0, 3))])
    now = replace(BOX, gpus=3, device_ids=("GPU-d", "GPU-c", "GPU-b"))
    tell(engine, NodeChanged(5.0, now))
    assert statuses(engine) == [Status.PENDING, Status.RUNNING, Status.RUNNING]
    assert engine.state.placed == {1: on((0, 2), (0, 1)), 2: on((0, 0))}
    assert engine.state.capacity.idle[0] == 0


def test_sharing_slices_losses_and_claims_move_with_their_devices() -> None:
    shared = job("a", gpu_frac=0.5, gpu_memory_bytes=4.0 * GIB)
    engine = engine_with([shared, job("b", gpu_frac=0.4, sharing=frozenset((Sharing.MIG,)))], cluster(BOX))
    engine.order(0.0, [Repartition(0, 1, HALVES)])
    engine.order(0.0, [Start(0, on((0, 0), sharing=Sharing.SHARED, milli=500)), Start(1, mig(0, 1, 4))])
    tell(engine, DevicesClaimed(1.0, "box", (("GPU-a", 2.0 * GIB, False),)), DeviceLost(2.0, "box", "GPU-c"))
    tell(engine, NodeChanged(3.0, replace(BOX, device_ids=("GPU-x", "GPU-c", "GPU-b", "GPU-a"))))
    capacity = engine.state.capacity
    assert engine.state.placed == {0: on((0, 3), sharing=Sharing.SHARED, milli=500), 1: mig(0, 2, 4)}
    assert capacity.open_memory[0, 3] == 10.0 * GIB
    assert capacity.layouts == {(0, 2): HALVES}
    assert (capacity.lost, capacity.idle[0]) == ({0: 0b10}, 0b1)


def test_a_drained_node_keeps_its_jobs_and_gets_no_others() -> None:
    engine = running(job("a"), placements=[on((0, 0))], nodes=cluster(BOX))
    tell(engine, NodeChanged(5.0, replace(BOX, schedulable=False)))
    assert statuses(engine) == [Status.RUNNING]
    assert engine.state.capacity.idle_total == [0]
    assert not engine.state.capacity.up[0]
    tell(engine, NodeChanged(6.0, BOX))
    assert engine.state.capacity.idle_total == [3]


def test_a_node_with_fewer_cpus_than_its_jobs_use_keeps_them_and_has_none_free() -> None:
    engine = running(job("a", cpus=6.0), placements=[on((0, 0))], nodes=cluster(BOX))
    engine.step(5.0, [NodeChanged(5.0, replace(BOX, cpus=4.0))])
    assert statuses(engine) == [Status.RUNNING]
    assert engine.state.capacity.free_cpus[0] == 0.0
    engine.step(6.0, [NodeLost(6.0, "box"), NodeRestored(6.0, "box")])
    assert engine.state.capacity.free_cpus[0] == 4.0


def test_who_is_still_saving_on_a_node_that_is_lost_is_requeued_with_what_was_saved_before() -> None:
    engine = running(job("a", 100.0), job("b"), placements=[on((0, 0)), on((1, 0))])
    engine.policy.script = [lambda draft: draft.suspend(0)]
    tell(engine, WokeUp(9.0))
    assert statuses(engine) == [Status.SUSPENDING, Status.RUNNING]
    assert engine.state.leaving == {0: on((0, 0))}
    tell(engine, NodeLost(10.0, "box"))
    assert statuses(engine) == [Status.PENDING, Status.RUNNING]
    assert engine.state.jobs.steps_done.item(0) == 0.0
    assert not engine.state.leaving


def test_who_has_saved_is_not_saving_any_more() -> None:
    engine = running(job("a", 100.0), placements=[on((0, 0))])
    engine.policy.script = [lambda draft: draft.suspend(0)]
    tell(engine, WokeUp(9.0), JobSuspended(10.0, 0, 8.0), NodeLost(11.0, "box"))
    assert statuses(engine) == [Status.SUSPENDED]
    assert engine.state.jobs.steps_done.item(0) == 8.0


@pytest.mark.parametrize(
    "event",
    [
        NodeLost(2.0, "nobody"),
        NodeRestored(2.0, "nobody"),
        NodeRemoved(2.0, "nobody"),
        NodeChanged(2.0, node("nobody", 1)),
        DeviceLost(2.0, "box", "GPU-z"),
        DeviceRestored(2.0, "box", "GPU-z"),
        DevicesClaimed(2.0, "nobody", (("x", 1.0, True),)),
        DevicesClaimed(2.0, "box", (("GPU-z", 1.0, True),)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_nobody_knows_of_changes_nothing(event: Event) -> None:
    engine = running(job("a"), placements=[on((0, 0))])
    before = snapshot(engine.state)
    tell(engine, event)
    assert snapshot(engine.state) | {"now_s": 1.0} == before


# -- what others use ---------------------------------------------------------------------------------------------------


def test_a_device_that_others_compute_on_is_not_idle_until_they_leave() -> None:
    engine = tell(engine_with([], cluster(BOX)), DevicesClaimed(1.0, "box", (("GPU-b", GIB, True),)))
    assert engine.state.capacity.idle[0] == 0b1101
    tell(engine, DevicesClaimed(2.0, "box"))
    assert engine.state.capacity.idle[0] == 0b1111


def test_a_claim_on_a_device_that_a_job_holds_counts_when_the_job_leaves() -> None:
    engine = running(job("a"), placements=[on((0, 1))], nodes=cluster(BOX))
    tell(engine, DevicesClaimed(2.0, "box", (("GPU-b", GIB, True),)))
    assert statuses(engine) == [Status.RUNNING]
    tell(engine, NodeLost(3.0, "box"), NodeRestored(4.0, "box"))
    assert engine.state.capacity.idle[0] == 0b1101


def test_what_others_use_of_a_host_is_not_free_and_comes_back() -> None:
    engine = running(job("a", cpus=3.0), placements=[on((0, 0))], nodes=cluster(BOX))
    tell(engine, DevicesClaimed(2.0, "box", cpus=7.0))
    assert engine.state.capacity.free_cpus[0] == 0.0  # 8 - 3 - 7 is below 0
    tell(engine, DevicesClaimed(3.0, "box", cpus=4.0))
    assert engine.state.capacity.free_cpus[0] == 1.0
    tell(engine, NodeLost(4.0, "box"), NodeRestored(4.0, "box"))
    assert engine.state.capacity.free_cpus[0] == 4.0
    tell(engine, DevicesClaimed(5.0, "box"))
    assert engine.state.capacity.free_cpus[0] == 8.0


# -- journals of the version before ------------------------------------------------------------------------------------


def test_rows_and_indexes_in_older_journals_are_read() -> None:
    engine = running(job("a", 100.0), job("b"), placements=[on((0, 0)), on((1, 0))])
    lines = [
        '{"type":"DeviceLost","at_s":2.0,"node":0,"device":0,"interrupted":[[0,0.5]]}',
        '{"type":"NodeLost","at_s":3.0,"node":1,"interrupted":[]}',
        '{"type":"NodeRestored","at_s":4.0,"node":1}',
        '{"type":"DeviceRestored","at_s":5.0,"node":0,"device":0}',
    ]
    replay_onto(engine.state, lines)
    assert statuses(engine) == [Status.PENDING, Status.PENDING]
    assert engine.state.jobs.steps_done.item(0) == 0.5
    check_capacity(engine.state)
    assert engine.state.capacity.idle == [0b1111, 0b11]


def test_a_snapshot_of_the_version_before_is_read() -> None:
    engine = running(job("a"), placements=[on((0, 0))], nodes=cluster(node("box", 2)))
    document = snapshot(engine.state)
    for name in ("removed", "claims", "leaving"):
        del document[name]
    again = Engine(cluster_of(document), engine.policy, placer=engine.view.placer)
    restore(again.state, json.loads(json.dumps(document)))
    assert again.state.placed == {0: on((0, 0))}


def test_a_drain_stays_in_force_when_a_machine_is_reported_again() -> None:
    engine = running(job("a"), placements=[on((0, 0))], nodes=cluster(BOX))
    engine.take_in(5.0, [NodeChanged(5.0, replace(BOX, schedulable=False))])
    engine.take_in(6.0, [NodeAdded(6.0, BOX)])
    assert not engine.state.capacity.up[0]
    engine.take_in(7.0, [NodeChanged(7.0, BOX)])
    assert engine.state.capacity.up[0]


def restored(engine: Engine) -> Engine:
    """An engine that goes on from a snapshot, as after a restart."""
    document = json.loads(json.dumps(snapshot(engine.state)))
    again = engine_with([], cluster_of(document))
    restore(again.state, document)
    return again


def test_a_node_that_was_asked_for_is_wanted_until_it_joins_or_cannot_be_had():
    engine = engine_with([], cluster(BOX))
    asked = [node(name, 2) for name in ("vm1", "vm2")]
    engine.order(1.0, [Provision(each) for each in asked])
    for each in (engine, restored(engine)):
        assert each.desired() == [NodeRequest(vm, True) for vm in asked]
    engine.take_in(2.0, [NodeAdded(2.0, asked[0]), NodeRemoved(2.0, "vm2")])
    assert engine.desired() == []
    check_equal(engine.state, replay(engine.journal.lines()))


def test_a_released_node_is_not_wanted_until_it_has_left():
    engine = engine_with([], cluster(BOX, node("vm", 2)))
    engine.order(1.0, [Release(1)])
    before = len(engine.journal)
    engine.take_in(2.0, [NodeAdded(2.0, node("vm", 2)), NodeLost(2.0, "vm"), NodeRestored(2.0, "vm")])
    assert len(engine.journal) == before  # that it is still there is no news
    for each in (engine, restored(engine)):
        assert each.desired() == [NodeRequest(node("vm", 2), False)]
        assert each.state.capacity.up == [True, False]
    engine.take_in(3.0, [NodeRemoved(3.0, "vm")])
    assert engine.desired() == []
    engine.take_in(4.0, [NodeAdded(4.0, node("vm", 2))])
    assert engine.state.capacity.up == [True, True]


def test_a_node_that_cannot_be_given_back_is_in_service_again():
    engine = engine_with([], cluster(BOX, node("vm", 2)))
    engine.order(1.0, [Release(1)])
    engine.take_in(2.0, [ReleaseRefused(2.0, "vm")])
    assert engine.state.capacity.up == [True, True]
    assert engine.desired() == []
    before = len(engine.journal)
    engine.take_in(3.0, [ReleaseRefused(3.0, "vm"), ReleaseRefused(3.0, "unknown")])
    assert len(engine.journal) == before
    check_equal(engine.state, replay(engine.journal.lines()))
