"""Every node and device on which a job fits: for placements that weigh all choices against each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpuwise.core.capacity import Capacity, NodeSet
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.jobs import Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.placement import best_fit, lowest, share, sharing_of


class Candidates(NamedTuple):
    """The nodes that hold a job on their own, lowest first, and what is free on each of their devices."""

    nodes: Array
    """Rows of the node table."""
    idle: Array
    """Nodes × devices: which devices nobody holds."""
    free_milli: Array
    """Nodes × devices: what is left of each, however it is shared; 0 on those held whole, cut into slices or absent."""
    fits: Array
    """Nodes × devices: where a fraction of a GPU may go; the idle devices if the job asks for whole ones."""


def takes_fraction(shape: Shape, gpus: int) -> bool:
    """Whether the job gets a part of one device."""
    return gpus > 0 and not shape.whole


def candidates(capacity: Capacity, shape: Shape, gpus: int) -> Candidates:
    """The nodes on which ``gpus`` GPUs of a shape fit, with CPUs and memory beside them."""
    fraction = takes_fraction(shape, gpus)
    found: NodeSet = 0
    for gpu_type in capacity.types_for(shape):
        found |= capacity.at_least(gpu_type, 0 if fraction else gpus)
    if found and shape.needs_host:
        found &= capacity.hosts(shape, gpus)
    nodes = _rows(found)
    idle = _idle_devices(capacity, nodes)
    left = capacity.open_milli[nodes]
    free = np.where(idle, WHOLE_GPU_MILLI, left)
    if not fraction:
        return Candidates(nodes, idle, free, idle)
    fits = (left >= shape.milli) & (capacity.open_sharing[nodes] == sharing_of(shape))
    if shape.gpu_memory_bytes:
        fits &= capacity.open_memory[nodes] >= shape.gpu_memory_bytes
    fits |= idle
    some = fits.any(axis=1)
    return Candidates(nodes[some], idle[some], free[some], fits[some])


def on_node(capacity: Capacity, shape: Shape, gpus: int, node: int, device: int) -> Placement:
    """The placement on a chosen node: that device for a fraction, else the lowest idle ones, which are all alike."""
    if takes_fraction(shape, gpus):
        return share(node, device, shape)
    return Placement((Grant(node, lowest(capacity.idle[node], gpus)),))


def over_nodes(capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
    """Room for a gang that no node holds: by best fit, on the GPU types whose nodes are too small for it."""
    if shape.whole and any(gpus >= len(capacity.by_idle[gpu_type]) for gpu_type in capacity.types_for(shape)):
        return best_fit(capacity, shape, gpus)
    return None


def _rows(nodes: NodeSet) -> Array:
    packed = nodes.to_bytes((nodes.bit_length() + 7) // 8, "little")
    return np.flatnonzero(np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little"))


def _idle_devices(capacity: Capacity, nodes: Array) -> Array:
    masks = np.array(capacity.idle, dtype="<u8")[nodes]
    octets = masks.view(np.uint8).reshape(len(nodes), 8)
    return np.unpackbits(octets, axis=1, count=capacity.open_milli.shape[1], bitorder="little").view(np.bool_)
