"""Every node and device on which a job fits, for placements that compare all choices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeSet, node_set
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.placing.eligible import pick_devices
from gpuwise.policies.placing.fractions import share, sharing_of
from gpuwise.policies.placing.placement import best_fit


class Candidates(NamedTuple):
    """The nodes on which a job fits alone, preferred ones first, and what is free on each of their devices."""

    nodes: Array
    """Rows of the node table."""
    idle: Array
    """Nodes × devices: which devices are idle."""
    free_milli: Array
    """Nodes × devices: what is left of each; 0 on devices that are used whole, partitioned or absent."""
    fits: Array
    """Nodes × devices: where a fraction of a GPU may go; the idle devices if the job asks for whole ones."""


def takes_fraction(shape: Shape, gpus: int) -> bool:
    """Whether the job gets a part of one device."""
    return gpus > 0 and not shape.whole and sharing_of(shape) in (Sharing.SHARED, Sharing.TIME_SLICE)


def candidates(capacity: Capacity, shape: Shape, gpus: int) -> Candidates:
    """The nodes on which ``gpus`` GPUs of a shape fit, as do its CPUs and memory."""
    types = () if sharing_of(shape) is Sharing.MIG else capacity.types_for(shape)  # slices are not of whole devices
    if not takes_fraction(shape, gpus):
        nodes = _rows(capacity, shape, _with_host(capacity, shape, gpus, _union(capacity, shape, types, gpus)))
        idle = _idle_devices(capacity, nodes)
        return Candidates(nodes, idle, _free_milli(capacity, nodes, idle), idle)
    beside = _beside_others(capacity, shape)
    # Products with ones are sums over devices, several times as fast as `sum` and `any` are on rows this short.
    on_open = node_set(beside @ np.ones(beside.shape[1], dtype=np.bool_)) & _union(capacity, shape, types, 0)
    on_idle = _union(capacity, shape, types, 1)
    nodes = _rows(capacity, shape, _with_host(capacity, shape, gpus, on_open | on_idle))
    idle = _idle_devices(capacity, nodes)
    fits = _with_memory(capacity, shape, nodes, idle) | beside.take(nodes, axis=0)
    return Candidates(nodes, idle, _free_milli(capacity, nodes, idle), fits)


def on_node(capacity: Capacity, shape: Shape, gpus: int, node: int, device: int) -> Placement:
    """The placement on a chosen node: that device for a fraction, else the lowest idle ones, which are all alike."""
    if takes_fraction(shape, gpus):
        return share(node, device, shape)
    whole = Placement((Grant(node, pick_devices(capacity, node, capacity.usable(node, shape), gpus)),))
    return whole if shape.alone else whole._replace(sharing=sharing_of(shape))


def over_nodes(capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
    """Room for a job that fits no single node, by best fit: on MIG slices, or over nodes too small for a gang."""
    if sharing_of(shape) is Sharing.MIG:
        return best_fit(capacity, shape, gpus)
    if shape.whole and (shape.require or shape.avoid or shape.within):
        return best_fit(capacity, shape, gpus)
    if shape.whole and any(gpus >= len(capacity.by_idle[gpu_type]) for gpu_type in capacity.types_for(shape)):
        return best_fit(capacity, shape, gpus)
    return None


def _union(capacity: Capacity, shape: Shape, types: tuple[int, ...], idle: int) -> NodeSet:
    found: NodeSet = 0
    for gpu_type in types:
        found |= capacity.with_idle(gpu_type, idle, shape)
    return found


def _with_host(capacity: Capacity, shape: Shape, gpus: int, nodes: NodeSet) -> NodeSet:
    return nodes & capacity.hosts(shape, gpus) if nodes and shape.needs_host else nodes


def _beside_others(capacity: Capacity, shape: Shape) -> Array:
    """Nodes × devices: those open to sharing the way the shape shares, with room for it."""
    fits: Array = (capacity.open_milli >= shape.milli) & (capacity.open_sharing == sharing_of(shape))
    return fits & (capacity.open_memory >= shape.gpu_bytes) if shape.gpu_bytes else fits


def _rows(capacity: Capacity, shape: Shape, nodes: NodeSet) -> Array:
    packed = nodes.to_bytes(max(1, (nodes.bit_length() + 7) // 8), "little")
    rows = np.flatnonzero(np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little"))
    if not shape.prefer:
        return rows
    preferred = capacity.preferred(shape)
    order = sorted(rows.tolist(), key=lambda row: [not nodes >> row & 1 for nodes in preferred])
    return np.asarray(order, dtype=rows.dtype)


def _with_memory(capacity: Capacity, shape: Shape, nodes: Array, idle: Array) -> Array:
    """Nodes × devices: the idle ones on which foreign processes leave enough memory."""
    if not capacity.claimed_memory:
        return idle
    masks = [capacity.usable(node, shape) for node in nodes.tolist()]
    return np.array([[mask >> device & 1 for device in range(idle.shape[1])] for mask in masks], dtype=np.bool_)


def _idle_devices(capacity: Capacity, nodes: Array) -> Array:
    masks = np.fromiter(capacity.idle, dtype="<u8", count=len(capacity.idle)).take(nodes)
    octets = masks.view(np.uint8).reshape(len(nodes), 8)
    return np.unpackbits(octets, axis=1, count=capacity.open_milli.shape[1], bitorder="little").view(np.bool_)


def _free_milli(capacity: Capacity, nodes: Array, idle: Array) -> Array:
    return np.where(idle, WHOLE_GPU_MILLI, capacity.open_milli.take(nodes, axis=0))
