"""From the store to an engine: the last snapshot, the journal since, and this machine as it is now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpuwise.core.commands import MigSlice, Repartition
from gpuwise.core.jobs import Status
from gpuwise.core.records import Batch, Snapshot, Store
from gpuwise.core.spec import ClusterSpec
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import plain, replay_onto
from gpuwise.engine.snapshot import cluster_of, restore, snapshot

MakeEngine = Callable[[ClusterSpec], Engine]
Layouts = Mapping[tuple[int, int], tuple[MigSlice, ...]]
"""How GPUs are cut into MIG slices, by node and device."""


@dataclass(slots=True)
class Recovered:
    """An engine as the store knows it."""

    engine: Engine
    sequence: int
    """Of the last journal line."""
    lines: int
    """Lines since the snapshot."""


def recover(
    store: Store, cluster: ClusterSpec, make_engine: MakeEngine, layouts: Layouts = MappingProxyType({})
) -> Recovered:
    """The engine that the store's records lead to, on the nodes that are there now.

    ``layouts`` is how GPUs are cut before gpuwise has ever seen them.
    """
    kept, lines = store.recover()
    if kept is None:
        engine = make_engine(cluster)
        engine.order(0.0, [Repartition(*where, slices) for where, slices in layouts.items()])
        store.commit(Batch(snapshot=Snapshot(0, to_json(engine))))
        return Recovered(engine, 0, 0)
    engine = from_json(kept.body, make_engine)
    replay_onto(engine.state, (line.body for line in lines))
    sequence = lines[-1].sequence if lines else kept.sequence
    if _kinds(ClusterSpec(tuple(engine.state.nodes.specs))) != _kinds(cluster):
        engine = _move_in(engine, cluster, make_engine, layouts)
        store.commit(Batch(snapshot=Snapshot(sequence, to_json(engine))))
        return Recovered(engine, sequence, 0)
    return Recovered(engine, sequence, len(lines))


def to_json(engine: Engine) -> str:
    """An engine's state, with the policy whose line it is."""
    return json.dumps(snapshot(engine.state) | {"policy": engine.policy.name}, separators=(",", ":"))


def from_json(body: str, make_engine: MakeEngine) -> Engine:
    """An engine in the state that `to_json` wrote."""
    document = json.loads(body)
    engine = make_engine(cluster_of(document))
    restore(engine.state, document, keep_order=document["policy"] == engine.policy.name)
    return engine


def compacted(engine: Engine, body: str, make_engine: MakeEngine) -> Engine:
    """The same engine without the jobs that have ended."""
    fresh = from_json(body, make_engine)
    fresh.wake_at = engine.wake_at
    return fresh


def _kinds(cluster: ClusterSpec) -> list[tuple[str, str, int]]:
    return [(node.name, node.gpu_type, node.gpus) for node in cluster.nodes]


def _move_in(engine: Engine, cluster: ClusterSpec, make_engine: MakeEngine, layouts: Layouts) -> Engine:
    """The jobs of an engine on other nodes than before: whoever held GPUs waits again, with what it has saved."""
    document = snapshot(engine.state)
    document |= {"nodes": [plain(node) for node in cluster.nodes], "down": [], "lost": [], "placed": []}
    document["layouts"] = [[*where, slices] for where, slices in layouts.items()]
    for entry in document["jobs"]:
        _send_back(entry)
    moved = make_engine(cluster)
    restore(moved.state, document, keep_order=False)
    return moved


def _send_back(entry: dict[str, Any]) -> None:
    course = entry["course"]
    if course["status"] in (Status.STARTING, Status.RUNNING, Status.SUSPENDING):
        course |= {"status": int(Status.PENDING), "steps_done": course["saved_steps"], "rate": 0.0, "held_gpus": 0.0}
    if entry["hold"] is None:
        entry["key"] = 0.0
