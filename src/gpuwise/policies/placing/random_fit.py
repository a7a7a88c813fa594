"""Random fit: any node that has room, with equal odds; a baseline for other placements."""

from __future__ import annotations

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.job.shape import Shape
from gpuwise.policies.placing.candidates import candidates, on_node, over_nodes


class RandomFit:
    """Draws a node from those with room, then for a fraction of a GPU a device from those of the node with room."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._rng = np.random.default_rng(seed)

    def __call__(self, capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
        """Room for ``gpus`` GPUs of a shape, or none."""
        room = candidates(capacity, shape, gpus)
        if not len(room.nodes):
            return over_nodes(capacity, shape, gpus)
        row = int(self._rng.integers(len(room.nodes)))
        devices = np.flatnonzero(room.fits[row])
        device = int(devices[self._rng.integers(len(devices))]) if len(devices) else 0
        return on_node(capacity, shape, gpus, int(room.nodes[row]), device)
