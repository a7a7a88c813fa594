"""The engine on disk: written turn by turn, and rebuilt from the last snapshot and the journal since."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Command, MigSlice, Placement, Repartition
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import Event, NodeAdded, NodeChanged, NodeRemoved, WokeUp
from gpuwise.core.records import RESTORE, Batch, JournalLine, Snapshot, Store, StoreError
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import HANDLERS, encode, replay_onto
from gpuwise.engine.node_transitions import still_drained
from gpuwise.engine.snapshot import cluster_of, renumbered, restore, snapshot
from gpuwise.live.clock import Clock

log = logging.getLogger("gpuwise.controller")
COMPACT_LINES = 20_000
"""After this many journal lines, or four per live job, the state is written whole and ended jobs are left out."""
MakeEngine = Callable[[ClusterSpec], Engine]
Layouts = Mapping[tuple[int, int], tuple[MigSlice, ...]]
"""How GPUs are partitioned into MIG slices, by node and device."""


def to_json(engine: Engine) -> str:
    """An engine's state, with the policy that ordered its queue; nodes that were removed are left out."""
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
        now = still_drained(known[node.name], node)
        if now != known[node.name]:
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
        is_kept = known is not None and known.is_same_machine(spec) and device in known.kept_devices(spec).values()
        if not is_kept and state.capacity.idle[row] >> device & 1:
            state.capacity.repartition(row, device, slices)
    return events


def _renumbered(engine: Engine, cluster: ClusterSpec, make_engine: MakeEngine) -> Engine:
    """The same engine with its nodes in the order of the cluster, and without those that were removed."""
    rows = [engine.state.nodes.row_of[node.name] for node in cluster.nodes]
    document = renumbered(snapshot(engine.state), rows)
    ordered = make_engine(cluster_of(document))
    restore(ordered.state, document)
    return ordered


def journal_line(number: int, at: float, record: Event | Command, now_s: float, state: ClusterState) -> JournalLine:
    """A journal line, with the names of the nodes in it: their rows may be others after a restart."""
    job = getattr(record, "job", None)
    uid = state.jobs.ids[job] if job is not None else None
    body = encode(record, now_s, state.jobs)
    if rows := _node_rows(record):
        names = {row: state.nodes.names[row] for row in rows}
        body = f'{body[:-1]},"names":{json.dumps(names, separators=(",", ":"))}}}'
    return JournalLine(number, at, type(record).__name__, uid, body)


def _node_rows(record: Event | Command) -> tuple[int, ...]:
    """The nodes that a record has by their rows, as far as people are shown them."""
    placement, node = getattr(record, "placement", None), getattr(record, "node", None)
    if isinstance(placement, Placement):
        return placement.nodes
    return (node,) if isinstance(node, int) else ()


def damaged(store: Store, what: str) -> StoreError:
    """The error for records that contradict each other or cannot be read, with the way out."""
    return StoreError(f"store {store.place}: {what}; {RESTORE}")


class EngineStore:
    """Where an engine is written and rebuilt from."""

    def __init__(
        self, store: Store, cluster: ClusterSpec, make_engine: MakeEngine, clock: Clock, layouts: Layouts
    ) -> None:
        self.store = store
        self.clock = clock
        self.make_engine = make_engine
        self.before_write: Callable[[], object] = lambda: None
        self._cluster = cluster
        self._layouts = layouts
        """How GPUs are partitioned before gpuwise has ever seen them."""
        self._knows_nodes = False
        """Whether the nodes at the start are in the records; from then on, what happens to nodes is."""
        self._sequence = 0
        """Of the last journal line."""
        self._lines = 0
        """Since the last snapshot."""
        self._compact_at = COMPACT_LINES

    def rebuild(self) -> Engine:
        """The engine that the store's records lead to; the clock is set forward to what was written last.

        The first time it is on the nodes that are there now, with what can still run there.
        """
        kept, lines = self.store.recover()
        self._check_complete(kept, lines)
        if kept is None:
            engine = self.make_engine(self._cluster)
            engine.order(0.0, [Repartition(*where, slices) for where, slices in self._layouts.items()])
            self.store.commit(Batch(snapshot=Snapshot(0, to_json(engine))))
        else:
            engine = self._replayed(kept, lines)
            self.clock.not_before(engine.state.now_s)
            self._sequence, self._lines = (lines[-1] if lines else kept).sequence, len(lines)
            if not self._knows_nodes and (events := _follow_nodes(engine, self._cluster, self._layouts)):
                engine = self._on_these_nodes(engine, events)
        self._knows_nodes = True
        engine.journal.records.clear()
        return engine

    def _check_complete(self, kept: Snapshot | None, lines: Sequence[JournalLine]) -> None:
        """Refuses a journal from which rows are missing: what comes after them would be done to another state."""
        last = 0 if kept is None else kept.sequence
        for expected, line in enumerate(lines, last + 1):
            if line.sequence != expected:
                raise damaged(self.store, f"table journal has no row with sequence {expected}")
        if kept is None and lines:
            raise damaged(self.store, "table snapshots is empty, and table journal is not")

    def _replayed(self, kept: Snapshot, lines: Sequence[JournalLine]) -> Engine:
        """The engine of a snapshot and the lines after it; damage is named, with the way out."""
        at = f"table snapshots, sequence {kept.sequence}"
        try:
            engine = from_json(kept.body, self.make_engine)
            for line in lines:
                at = f"table journal, sequence {line.sequence}"
                replay_onto(engine.state, (line.body,), first=line.sequence)
        except (ValueError, LookupError, TypeError, AttributeError, GpuwiseError) as error:
            raise damaged(self.store, f"{at} cannot be read ({type(error).__name__}: {error})") from error
        return engine

    def _on_these_nodes(self, engine: Engine, events: Sequence[Event]) -> Engine:
        """Writes what has happened to the nodes; the engine with these in order, and without what has ended."""
        at, state = self.clock.unix(self.clock.now_s()), engine.state
        numbered = enumerate(events, self._sequence + 1)
        changes = [journal_line(number, at, event, event.at_s, state) for number, event in numbered]
        self._sequence, self._lines = self._sequence + len(changes), 0
        if state.nodes.names != [node.name for node in self._cluster.nodes]:
            engine = _renumbered(engine, self._cluster, self.make_engine)
        body = to_json(engine)
        self.store.commit(Batch(lines=changes, snapshot=Snapshot(self._sequence, body)))
        return compacted(engine, body, self.make_engine)  # what follows goes by the snapshot's rows

    def take_lines(self, engine: Engine, now_s: float) -> list[JournalLine]:
        """The turn's journal, to be written. That the policy was asked and changed nothing is not worth a write."""
        records = engine.journal.records
        if all(isinstance(record, WokeUp) for record in records):
            records.clear()
        lines = []
        for number, record in enumerate(records, start=self._sequence + 1):
            at_s = record.at_s if isinstance(record, Event) else now_s
            lines.append(journal_line(number, self.clock.unix(at_s), record, now_s, engine.state))
        records.clear()
        return lines

    def commit(self, batch: Batch) -> None:
        """Writes a turn, all or nothing."""
        self.before_write()
        self.store.commit(batch)
        self._sequence += len(batch.lines)
        self._lines += len(batch.lines)

    def compact(self, engine: Engine, live_jobs: int) -> Engine | None:
        """Writes the state whole if the journal is long; the engine to continue with, without what has ended."""
        if self._lines <= max(self._compact_at, 4 * live_jobs):
            return None
        started = monotonic()
        self._compact_at = self._lines + COMPACT_LINES  # if it fails
        try:
            body = to_json(engine)
            fresh = compacted(engine, body, self.make_engine)
            self.store.commit(Batch(snapshot=Snapshot(self._sequence, body)))
        except Exception:
            log.exception("could not compact the journal; it continues to grow")
            return None
        self._compact_at, self._lines = COMPACT_LINES, 0
        log.info("compacted the journal at line %d in %.2f s", self._sequence, monotonic() - started)
        return fresh
