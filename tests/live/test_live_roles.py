"""Jobs with roles under a controller: submitted, run as one gang, resized, and kept over a restart on other nodes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from world import World

from builders import node
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import Store
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.inbox import NotPossibleError
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy

BOX = node("box", 4, cpus=8.0)
HOST = node("host", 0, "", cpus=16.0)
REFUSAL = (
    "it asks for 2 GPUs, as 2 × worker (1 GPU, 1 CPUs) and 1 × ps (17 CPUs), "
    "and there are 4 × V100 (8 CPUs), 0 GPUs (16 CPUs)"
)


def service(store: Store, world: World, *nodes: NodeSpec) -> Controller:
    clock = Clock(1000.0, wall=lambda: 1000.0 + world.now_s, monotonic=world.monotonic)

    def make(spec: ClusterSpec) -> Engine:
        world.engine = Engine(spec, make_policy("fifo"), placer=with_roles(best_fit))
        return world.engine

    return Controller(store, world, ClusterSpec(nodes), make, clock)


def gang(workers: int = 2, ps_cpus: float = 10.0, **more: Any) -> JobRequest:
    worker = {"name": "worker", "count": workers, "min_count": 1, "max_count": 4, "gpus": 1, "cpus": 1.0}
    roles = [worker, {"name": "ps", "cpus": ps_cpus}]
    return JobRequest.from_json({"command": ["train"], "duration_s": 100.0, "roles": roles, **more})


def submit(controller: Controller, request: JobRequest) -> str:
    future = controller.submit([request], "ada")
    controller.turn()
    return future.result(0)[0].uid


def test_a_gang_runs_from_its_submission_to_its_end(store: Store) -> None:
    controller = service(store, World(), BOX, HOST)
    uid = submit(controller, gang())
    for _ in range(5):
        controller.turn()
    record = store.job(uid)
    assert record is not None
    assert (record.status, record.ended_at) == ("succeeded", 1100.0)
    assert record.gpu_s == 200.0


def test_its_record_says_where_its_tasks_are(store: Store) -> None:
    controller = service(store, World(), BOX, HOST)
    submit(controller, gang())
    (record,) = controller.live_records()
    assert record.placement == "box:0,1 [2 worker on box, 1 ps on host]"


def test_a_gang_that_can_never_be_whole_is_refused(store: Store) -> None:
    controller = service(store, World(), BOX, HOST)
    with pytest.raises(NotPossibleError, match=re.escape(REFUSAL)):
        submit(controller, gang(ps_cpus=17.0))


def test_a_user_resizes_its_elastic_role(store: Store) -> None:
    controller = service(store, World(), BOX, HOST)
    uid = submit(controller, gang())
    controller.turn()
    answer = controller.resize(uid, 4)
    controller.turn()
    answer.result(0)
    assert controller.engine.view.tasks(controller.engine.state.jobs.row_of[uid]) == {"worker": 4, "ps": 1}


def test_a_restart_on_nodes_in_another_order_keeps_tasks_where_they_are(store: Store) -> None:
    world = World()
    uid = submit(service(store, world, BOX, HOST), gang())
    again = service(store, world, node("new", 1, "T4"), HOST, BOX)
    state = again.engine.state
    placement = state.placed[state.jobs.row_of[uid]]
    names = state.nodes.names
    assert [(role, names[row], number) for role, row, number in placement.tasks] == [
        ("worker", "box", 2), ("ps", "host", 1)
    ]  # fmt: skip
    free = dict(zip(names, state.capacity.free_cpus.tolist(), strict=True))
    assert (free["box"], free["host"]) == (6.0, 6.0)


def test_a_gang_whose_parameter_server_lost_its_node_waits_again(store: Store) -> None:
    world = World()
    uid = submit(service(store, world, BOX, HOST), gang())
    again = service(store, world, BOX)
    state = again.engine.state
    assert state.status(state.jobs.row_of[uid]).name == "PENDING"
    assert state.capacity.free_cpus.tolist() == [8.0]
