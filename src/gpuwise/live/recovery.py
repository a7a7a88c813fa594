"""From the store to an engine: the last snapshot, the journal since, and this machine as it is now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import MigSlice, Repartition
from gpuwise.core.events import Event, NodeAdded, NodeChanged, NodeRemoved
from gpuwise.core.records import Batch, Snapshot, Store
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import HANDLERS, replay_onto
from gpuwise.engine.snapshot import cluster_of, renumbered, restore, snapshot
from gpuwise.live.clock import Clock
from gpuwise.live.journal_lines import journal_line

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
    store: Store,
    cluster: ClusterSpec,
    make_engine: MakeEngine,
    clock: Clock,
    layouts: Layouts = MappingProxyType({}),
    *,
    same_nodes: bool = False,
) -> Recovered:
    """The engine that the store's records lead to, on the nodes that are there now; what still can run stays.

    The clock is set forward to what was written last. ``layouts`` is how GPUs are cut before gpuwise has ever seen
    them. With ``same_nodes`` the nodes are those that the records lead to.
    """
    kept, lines = store.recover()
    if kept is None:
        engine = make_engine(cluster)
        engine.order(0.0, [Repartition(*where, slices) for where, slices in layouts.items()])
        store.commit(Batch(snapshot=Snapshot(0, to_json(engine))))
        return Recovered(engine, 0, 0)
    engine = from_json(kept.body, make_engine)
    replay_onto(engine.state, (line.body for line in lines))
    clock.not_before(engine.state.now_s)
    sequence = lines[-1].sequence if lines else kept.sequence
    if not same_nodes and (events := _follow_nodes(engine, cluster, layouts)):
        at, state = clock.unix(clock.now_s()), engine.state
        changes = [
            journal_line(number, at, event, event.at_s, state) for number, event in enumerate(events, sequence + 1)
        ]
        sequence += len(changes)
        if engine.state.nodes.names != [node.name for node in cluster.nodes]:
            engine = _renumbered(engine, cluster, make_engine)
        body = to_json(engine)
        store.commit(Batch(lines=changes, snapshot=Snapshot(sequence, body)))
        return Recovered(compacted(engine, body, make_engine), sequence, 0)  # what follows goes by the snapshot's rows
    return Recovered(engine, sequence, len(lines))


def to_json(engine: Engine) -> str:
    """An engine's state, with the policy whose line it is; nodes that were removed are left out."""
    document, nodes = snapshot(engine.state), engine.state.nodes
    if nodes.removed:
        document = renumbered(document, [row for row, _ in nodes.present()])
    return json.dumps(document | {"policy": engine.policy.name}, separators=(",", ":"))


def from_json(body: str, make_engine: MakeEngine) -> Engine:
    """An engine in the state that `to_json` wrote."""
    document = json.loads(body)
    engine = make_engine(cluster_of(document))
    restore(engine.state, document, keep_order=document["policy"] == engine.policy.name)
    return engine


def compacted(engine: Engine, body: str, make_engine: MakeEngine) -> Engine:
    """The same engine without the jobs that have ended and the nodes that were removed."""
    fresh = from_json(body, make_engine)
    fresh.take_over(engine)
    return fresh


def node_changes(nodes: NodeTable, cluster: ClusterSpec, now_s: float) -> list[Event]:
    """What has happened to the nodes of a table if those of a cluster are there now; a drain stays in force."""
    known = {spec.name: spec for _, spec in nodes.present()}
    here = {node.name for node in cluster.nodes}
    events: list[Event] = [NodeRemoved(now_s, name) for name in known if name not in here]
    for node in cluster.nodes:
        if node.name not in known:
            events.append(NodeAdded(now_s, node))
            continue
        before = known[node.name]
        now = replace(node, schedulable=node.schedulable and before.schedulable)
        if now != before:
            events.append(NodeChanged(now_s, now))
    return events


def _follow_nodes(engine: Engine, cluster: ClusterSpec, layouts: Layouts) -> list[Event]:
    """Brings an engine to the nodes that are there now, with all jobs whose devices still are; what has changed."""
    state = engine.state
    before = {spec.name: spec for _, spec in state.nodes.present()}
    events = node_changes(state.nodes, cluster, state.now_s)
    for event in events:
        HANDLERS[type(event)](state, event)
    for (number, device), slices in layouts.items():
        spec = cluster.nodes[number]
        row, known = state.nodes.row_of[spec.name], before.get(spec.name)
        is_new = known is None or device not in known.kept_devices(spec).values()
        if is_new and state.capacity.idle[row] >> device & 1:
            state.capacity.repartition(row, device, slices)
    return events


def _renumbered(engine: Engine, cluster: ClusterSpec, make_engine: MakeEngine) -> Engine:
    """The same engine with its nodes in the order of the cluster, and without those that were removed."""
    rows = [engine.state.nodes.row_of[node.name] for node in cluster.nodes]
    document = renumbered(snapshot(engine.state), rows)
    ordered = make_engine(cluster_of(document))
    restore(ordered.state, document)
    return ordered
