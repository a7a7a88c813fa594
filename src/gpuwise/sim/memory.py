"""The memory that jobs really take, in a simulation: one that finds too little left on its GPU fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.state import Residents
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.job.needs import Sharing

OUT_OF_MEMORY_S = 30.0
"""How long a job holds its GPU until it has run out of memory: it loads its data and builds its model first."""

Layouts = Mapping[tuple[int, int], tuple[MigSlice, ...]]


class Memory:
    """What each job takes of a GPU, and what there is."""

    def __init__(self, nodes: NodeTable, gpu_memory_bytes: Sequence[float]) -> None:
        self._nodes = nodes
        self._bytes = gpu_memory_bytes

    def overflows(self, job: int, placement: Placement, residents: Residents, layouts: Layouts) -> bool:
        """Whether a job finds too little left on one of its GPUs, beside those that were there before it."""
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
        cut = layouts[grant.node, grant.devices.bit_length() - 1]
        return next(each.memory_bytes for each in cut if each.start == grant.slice_start)
