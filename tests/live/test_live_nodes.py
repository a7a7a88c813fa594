"""Nodes under a running service: drains, restarts on other nodes, and quotas and answers that follow."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from world import World
from world import request as asked

from builders import node
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.events import NodeAdded, NodeChanged, NodeLost, NodeRemoved
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Details, Phase
from gpuwise.core.records import Store
from gpuwise.core.units import GIB
from gpuwise.live import failures, recovery
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.recovery import node_changes
from gpuwise.service.live.journal_text import describe_record
from gpuwise.service.live.up import LocalDeployment, Settings

BOX = node("box", 2, device_ids=("GPU-a", "GPU-b"))
SIDE = node("side", 2, "T4")


def request(**more: Any) -> JobRequest:
    """A job that does not end while a test looks."""
    return asked(1e6, **more)


def service(store: Store, world: World, *nodes: NodeSpec) -> Controller:
    """A controller on these nodes."""
    clock = Clock(1000.0, wall=lambda: 1000.0 + world.now_s, monotonic=world.monotonic)
    return Controller(store, world, ClusterSpec(nodes), world.engines("fifo"), clock)


def submit(controller: Controller, *requests: JobRequest) -> list[str]:
    future = controller.submit(requests, "ada")
    turn(controller)
    return [record.uid for record in future.result(0)]


def turn(controller: Controller) -> None:
    """A turn, and as many more as jobs need to take their first step."""
    controller.turn()
    while any(record.status == "starting" for record in controller.live_records()):
        controller.turn()


def shown(controller: Controller, *uids: str) -> list[str]:
    state = controller.engine.state
    return [state.status(state.jobs.row_of[uid]).name.lower() for uid in uids]


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_restart_on_other_nodes_keeps_whatever_still_runs(store: Store) -> None:
    world = World()
    controller = service(store, world, BOX, SIDE)
    uids = submit(controller, request(gpu_types=("V100",)), request(gpu_types=("V100",)), request(gpu_types=("T4",)))
    assert shown(controller, *uids) == ["running"] * 3
    swapped = replace(BOX, gpus=3, device_ids=("GPU-x", "GPU-b", "GPU-a"))
    again = service(store, World(), node("new", 1), swapped)
    state = again.engine.state
    assert shown(again, *uids) == ["running", "running", "pending"]
    assert state.nodes.names == ["new", "box"]
    on_box = {state.jobs.ids[job]: placement.devices() for job, placement in state.placed.items()}
    assert on_box == {uids[0]: [(1, 2)], uids[1]: [(1, 1)]}


def test_a_restart_on_other_nodes_is_in_the_journal(store: Store) -> None:
    controller = service(store, World(), BOX, SIDE)
    (uid,) = submit(controller, request(gpu_types=("T4",)))
    before = store.last_sequence()
    world = World()
    world.now_s = 50.0
    again = service(store, world, node("new", 1), replace(BOX, cpus=4.0))
    lines = store.lines(after=before)
    assert [(line.sequence, line.kind, line.at) for line in lines] == [
        (before + 1, "NodeRemoved", 1050.0),
        (before + 2, "NodeAdded", 1050.0),
        (before + 3, "NodeChanged", 1050.0),
    ]
    submit(again, request())
    third = service(store, World(), node("new", 1), replace(BOX, cpus=4.0))
    assert shown(third, uid) == ["pending"]
    assert third.engine.state.nodes.names == ["new", "box"]


def test_lines_name_nodes_as_they_were_called_before_a_restart(store: Store) -> None:
    controller = service(store, World(), BOX, SIDE)
    submit(controller, request(gpu_types=("T4",)))
    again = service(store, World(), SIDE, BOX, node("new", 1))
    (start,) = [line for line in store.lines() if line.kind == "Start"]
    assert describe_record(start.kind, json.loads(start.body), again.engine.state.nodes.names) == "starts on side:0"


def test_a_restart_on_the_same_nodes_changes_nothing(store: Store) -> None:
    controller = service(store, World(), BOX, SIDE)
    uids = submit(controller, request(), request())
    before = dict(controller.engine.state.placed)
    again = service(store, World(), BOX, SIDE)
    assert shown(again, *uids) == ["running"] * 2
    assert again.engine.state.placed == before


def test_device_ids_that_become_known_move_nobody(store: Store) -> None:
    """As after an update from a version that did not keep them."""
    controller = service(store, World(), replace(BOX, device_ids=()))
    (uid,) = submit(controller, request())
    again = service(store, World(), BOX)
    assert shown(again, uid) == ["running"]
    assert again.engine.state.nodes.specs == [BOX]


def test_what_became_of_nodes_as_events() -> None:
    nodes = NodeTable()
    for spec in (BOX, replace(SIDE, schedulable=False), node("gone", 1)):
        nodes.put(spec)
    now = ClusterSpec((replace(BOX, cpus=4.0), SIDE, node("new", 1)))
    assert node_changes(nodes, now, 5.0) == [
        NodeRemoved(5.0, "gone"),
        NodeChanged(5.0, replace(BOX, cpus=4.0)),
        NodeAdded(5.0, node("new", 1)),
    ]


def test_a_drain_does_not_pass_to_another_machine_under_the_same_name() -> None:
    nodes = NodeTable()
    nodes.put(replace(SIDE, uid="first", schedulable=False))
    for now, events in ((replace(SIDE, uid="first"), []), (other := replace(SIDE, uid="second"), [other])):
        assert node_changes(nodes, ClusterSpec((now,)), 5.0) == [NodeChanged(5.0, each) for each in events]


def test_a_node_that_joined_is_still_there_after_a_turn_that_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "BACK_OFF_S", (0.0,))
    world = World()
    controller = service(store, world, BOX)
    world.queued.append(NodeAdded(world.now_s, SIDE))
    controller.turn()
    with monkeypatch.context() as broken:
        broken.setattr(controller.engine, "decide", lambda: 1 / 0)
        controller.set_schedulable("box", True)
        controller.turn()
    assert "division by zero" in controller.trouble
    controller.turn()
    assert controller.trouble == ""
    assert controller.engine.state.nodes.names == ["box", "side"]


# -- drains ------------------------------------------------------------------------------------------------------------


def test_a_drained_node_gets_no_jobs_also_after_a_restart(store: Store) -> None:
    controller = service(store, World(), BOX)
    (first,) = submit(controller, request())
    drained = controller.set_schedulable("box", False)
    controller.turn()
    assert drained.result(0)
    (second,) = submit(controller, request())  # it could run once the drain is over, so it is taken
    assert shown(controller, first, second) == ["running", "pending"]
    again = service(store, World(), BOX)
    assert shown(again, first, second) == ["running", "pending"]
    over = again.set_schedulable("box", True)
    turn(again)
    assert over.result(0)
    assert shown(again, first, second) == ["running", "running"]


def test_an_unknown_node_cannot_be_drained(store: Store) -> None:
    controller = service(store, World(), BOX)
    drained = controller.set_schedulable("nobody", False)
    controller.turn()
    assert not drained.result(0)


def test_a_report_of_the_executor_does_not_end_a_drain(store: Store) -> None:
    world = World()
    controller = service(store, world, BOX)
    controller.set_schedulable("box", False)
    controller.turn()
    labelled = replace(BOX, labels=(("zone", "b"),))
    world.queued.append(NodeChanged(world.now_s, labelled))
    controller.turn()
    assert controller.engine.state.nodes.specs == [replace(labelled, schedulable=False)]
    controller.set_schedulable("box", True)
    controller.turn()
    assert controller.engine.state.nodes.specs == [labelled]


# -- what follows ------------------------------------------------------------------------------------------------------


def test_a_job_that_was_too_large_is_taken_once_a_larger_node_has_joined(store: Store) -> None:
    world = World()
    controller = service(store, world, BOX)
    with pytest.raises(NotPossibleError, match="can never run here"):
        submit(controller, request(gpu_types=("H100",)))
    world.queued.append(NodeAdded(world.now_s, node("big", 8, "H100")))
    controller.turn()
    assert shown(controller, *submit(controller, request(gpu_types=("H100",)))) == ["running"]
    world.queued.append(NodeRemoved(world.now_s, "big"))
    controller.turn()
    with pytest.raises(NotPossibleError, match="can never run here"):
        submit(controller, request(gpu_types=("H100",)))


def test_a_job_that_was_too_large_is_taken_in_the_turn_in_which_a_larger_node_joins(store: Store) -> None:
    world = World()
    controller = service(store, world, BOX)
    with pytest.raises(NotPossibleError, match="can never run here"):
        submit(controller, request(gpus=4))
    world.queued.append(NodeAdded(world.now_s, node("big", 8)))
    assert shown(controller, *submit(controller, request(gpus=4))) == ["running"]


def test_shares_of_queues_follow_the_number_of_gpus(store: Store) -> None:
    world = World()
    controller = service(store, world, node("box", 1))
    uids = submit(controller, *(request(queue=queue) for queue in ("a", "b") for _ in range(4)))
    assert shown(controller, *uids).count("running") == 1
    world.queued.append(NodeAdded(world.now_s, node("new", 7)))
    controller.turn()
    controller.turn()  # it woke itself up, to let as many jobs into the line as there are GPUs now
    state = controller.engine.state
    assert len(state.placed) == 8, shown(controller, *uids)


def test_a_lost_node_needs_no_list_of_its_jobs(store: Store) -> None:
    world = World()
    controller = service(store, world, BOX)
    (uid,) = submit(controller, request())
    world.queued.append(NodeLost(world.now_s, "box"))
    controller.turn()
    assert shown(controller, uid) == ["pending"]
    assert store.job(uid).status == "pending"


@pytest.mark.parametrize("cancelled", [False, True])
def test_an_attempt_that_lost_its_node_was_not_cancelled(store: Store, cancelled: bool) -> None:
    world = World()
    controller = service(store, world, BOX)
    (uid,) = submit(controller, request())
    if cancelled:
        controller.cancel([uid], "ada")
    else:
        world.queued.append(NodeRemoved(world.now_s, "box"))
    controller.turn()
    details = Details(started_s=0.0)
    world.queued.append(AttemptObserved(world.now_s, uid, 1, Phase.STOPPED, 0.0, details=details))
    controller.turn()
    assert [attempt.outcome for attempt in store.attempts(uid)] == ["cancelled" if cancelled else "lost"]


@pytest.mark.parametrize(
    ("asked_for", "answer"),
    [
        ({"require": {"zone": ("a", "b")}}, "asks for 1 GPU, on nodes with zone a or b, and no node has zone a or b"),
        (
            {"gpus": 3, "require": {"zone": ("c",)}},
            "asks for 3 GPUs, on nodes with zone c, and there are 2 × V100",
        ),
        (
            {"gpus": 3, "within": "zone"},
            "asks for 3 GPUs, within one zone, and there are 2 × V100 (zone c), 2 × V100",
        ),
        ({"within": "rack"}, "its nodes must be within one rack, and no node has that label"),
        ({"cpus": 9.0}, "asks for 1 GPU, 9 CPUs, and there are 2 × V100 (4 CPUs), 2 × V100 (8 CPUs)"),
    ],
)
def test_a_refusal_names_what_does_not_fit(store: Store, asked_for: dict[str, Any], answer: str) -> None:
    labelled = replace(BOX, labels=(("zone", "c"),), cpus=4.0, memory_bytes=2 * GIB)
    controller = service(store, World(), labelled, node("small", 2, cpus=8.0, memory_bytes=GIB))
    with pytest.raises(NotPossibleError, match=re.escape(answer)):
        submit(controller, request(**asked_for))


def test_a_machine_has_the_labels_that_it_is_given(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path / "state", devices=1, labels=(("zone", "a"), ("rack", "7")))
    with closing(LocalDeployment(settings)) as deployment:
        (spec,) = deployment.controller.engine.state.nodes.specs
        assert spec.labels == (("rack", "7"), ("zone", "a"))


def test_nodes_that_left_are_forgotten_when_the_journal_is_compacted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "COMPACT_LINES", 40)
    world = World()
    controller = service(store, world, SIDE)
    for number in range(60):
        world.queued.append(NodeAdded(world.now_s, node(f"vm{number}", 1)))
        if number:
            world.queued.append(NodeRemoved(world.now_s, f"vm{number - 1}"))
        controller.turn()
        if number == 58:
            uids = submit(controller, request(gpu_types=("T4",)), request(gpu_types=("V100",)))
    again = service(store, World(), SIDE, node("vm59", 1))
    for state in (controller.engine.state, again.engine.state):
        assert len(state.nodes) < 40
        assert {spec.name for _, spec in state.nodes.present()} == {"side", "vm59"}
    turn(controller)
    assert shown(controller, *uids) == ["running", "running"]  # requeued when vm58 left
    assert controller.engine.state.nodes.where(controller.engine.state.placed[1])[0].node == "vm59"
