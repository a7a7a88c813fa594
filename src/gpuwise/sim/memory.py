"""The memory that jobs really take, in a simulation: one that finds too little left on its GPU fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.jobs import Shape
from gpuwise.core.memory import corrected_bytes
from gpuwise.core.nodes import NodeTable
from gpuwise.core.spec import Sharing
from gpuwise.core.state import Residents

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

    def never_fits(self, job: int, shape: Shape) -> bool:
        """Whether no GPUs here hold a job, even alone."""
        return self._bytes[job] > self._most(shape)

    def estimate(self, job: int, shape: Shape) -> float:
        """What is believed of a job's memory after it ran out with less."""
        return corrected_bytes(shape.gpu_memory_bytes, self._bytes[job], self._most(shape))

    def _most(self, shape: Shape) -> float:
        """Memory of the largest GPUs that a job may have and of which there are enough for it."""
        nodes, found = self._nodes, 0.0
        for code, (name, memory_bytes) in enumerate(zip(nodes.types, nodes.type_memory_bytes, strict=True)):
            gpus = sum(nodes.gpus.item(node) for node, kind in enumerate(nodes.type_of) if kind == code)
            if gpus >= shape.gpus and (not shape.gpu_types or name in shape.gpu_types):
                found = max(found, memory_bytes)
        return found

    def _slice_bytes(self, placement: Placement, layouts: Layouts) -> float:
        grant = placement.grants[0]
        cut = layouts[grant.node, grant.devices.bit_length() - 1]
        return next(each.memory_bytes for each in cut if each.start == grant.slice_start)
