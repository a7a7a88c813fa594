"""What fails in a simulation: nodes that are lost, and jobs that need more GPU memory than is left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.state import Residents
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.job.needs import Sharing

OUT_OF_MEMORY_S = 30.0
"""How long a job runs until it is out of memory: it loads its data and builds its model first."""

Layouts = Mapping[tuple[int, int], tuple[MigSlice, ...]]


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A node that is lost, and restored after ``down_s``."""

    at_s: float
    node: int
    down_s: float = math.inf


def apart(faults: Iterable[NodeFault]) -> list[NodeFault]:
    """Faults in order, with those of one node that overlap joined."""
    last: dict[int, NodeFault] = {}
    found: list[NodeFault] = []
    for fault in sorted(faults, key=lambda fault: (fault.at_s, fault.node)):
        before = last.get(fault.node)
        if before is not None and fault.at_s <= before.at_s + before.down_s:
            found.remove(before)
            ends_s = max(before.at_s + before.down_s, fault.at_s + fault.down_s)
            fault = NodeFault(before.at_s, fault.node, ends_s - before.at_s)
        last[fault.node] = fault
        found.append(fault)
    return found


class Memory:
    """The GPU memory that each job really takes."""

    def __init__(self, nodes: NodeTable, gpu_memory_bytes: Sequence[float]) -> None:
        self._nodes = nodes
        self._bytes = gpu_memory_bytes

    def overflows(self, job: int, placement: Placement, residents: Residents, layouts: Layouts) -> bool:
        """Whether a job finds too little left on one of its GPUs, beside the jobs that were there before it."""
        if placement.sharing is Sharing.MIG:
            return self._bytes[job] > self._slice_bytes(placement, layouts)
        for node, device in placement.devices():
            others = [each for each in residents.on(node, device) if each != job]
            if sum(self._bytes[each] for each in (job, *others)) > self._nodes.memory_of(node):
                return True
        return False

    def bytes(self, job: int) -> float:
        """What a job takes of each of its GPUs."""
        return self._bytes[job]

    def _slice_bytes(self, placement: Placement, layouts: Layouts) -> float:
        grant = placement.grants[0]
        slices = layouts[grant.node, grant.devices.bit_length() - 1]
        return next(each.memory_bytes for each in slices if each.start == grant.slice_start)
