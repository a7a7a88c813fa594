"""Least left: best fit over CPUs and GPUs together, for clusters where either may run out first."""

from __future__ import annotations

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.placing.candidates import Candidates, candidates, on_node, over_nodes


def least_left(capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
    """The node with the least left of CPUs and GPUs, each in parts of the largest node's, to a whole percent.

    The best fit of "Beware of Fragmentation" (USENIX ATC 2023). A fraction of a GPU goes to the fullest that has room.
    """
    room = candidates(capacity, shape, gpus)
    if not len(room.nodes):
        return over_nodes(capacity, shape, gpus)
    row = int(np.ceil(50 * _left(capacity, room, shape, gpus) - 1e-9).argmin())
    device = int(np.where(room.fits[row], room.free_milli[row], np.inf).argmin()) if room.fits.shape[1] else 0
    return on_node(capacity, shape, gpus, int(room.nodes[row]), device)


def _left(capacity: Capacity, room: Candidates, shape: Shape, gpus: int) -> Array:
    nodes, count = capacity.nodes, len(capacity.nodes)
    free_gpus = room.free_milli @ np.ones(room.free_milli.shape[1]) / WHOLE_GPU_MILLI
    left: Array = (free_gpus - gpus * shape.milli / WHOLE_GPU_MILLI) / max(int(nodes.gpus[:count].max()), 1)
    modelled = nodes.cpus[:count][np.isfinite(nodes.cpus[:count])]
    if len(modelled) and modelled.max() > 0:
        free_cpus = capacity.free_cpus.take(room.nodes) - shape.cpus
        left = left + np.where(np.isfinite(free_cpus), free_cpus / modelled.max(), 0.0)
    return left
