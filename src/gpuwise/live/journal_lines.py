"""Events and commands as the store keeps them."""

from __future__ import annotations

import json

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Command, Placement
from gpuwise.core.events import Event
from gpuwise.core.records import JournalLine
from gpuwise.engine.journal import encode


def journal_line(number: int, at: float, record: Event | Command, now_s: float, state: ClusterState) -> JournalLine:
    """A journal line, with the names of the nodes in it: their rows may be others after a restart."""
    job = getattr(record, "job", None)
    uid = state.jobs.ids[job] if job is not None else None
    body = encode(record, now_s, state.jobs)
    if rows := _rows(record):
        names = {row: state.nodes.names[row] for row in rows}
        body = f'{body[:-1]},"names":{json.dumps(names, separators=(",", ":"))}}}'
    return JournalLine(number, at, type(record).__name__, uid, body)


def _rows(record: Event | Command) -> tuple[int, ...]:
    """The nodes that a record has by their rows, as far as people are shown them."""
    placement, node = getattr(record, "placement", None), getattr(record, "node", None)
    if isinstance(placement, Placement):
        return placement.nodes
    return (node,) if isinstance(node, int) else ()
