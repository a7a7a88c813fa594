"""Which nodes and devices a job may use, and which of them are taken first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import EVERY_NODE, NodeSet, first
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI

Preferences = tuple[NodeSet, ...]


class Hosts:
    """The nodes that a gang may use, and how many of its GPUs their CPUs and memory can feed."""

    def __init__(self, capacity: Capacity, shape: Shape, among: NodeSet = EVERY_NODE) -> None:
        self._capacity = capacity
        self._shape = shape
        self._among = among & capacity.allowed(shape)
        self.matter = shape.needs_host
        self.preferred = capacity.preferred(shape)

    def with_room(self, gpus: int) -> NodeSet:
        """The nodes that can feed this many GPUs."""
        return self._capacity.hosts(self._shape, gpus) & self._among if self.matter else self._among

    def buckets(self, gpu_type: int) -> list[NodeSet]:
        """The nodes of a GPU type, by the number of idle GPUs that they have for the gang."""
        return self._capacity.buckets(gpu_type, self._shape, self._among)

    def node_size(self, gpu_type: int) -> int:
        """GPUs of the largest node of a type that the gang may use."""
        buckets = self._capacity.by_idle[gpu_type]
        if self._among == EVERY_NODE or not buckets:
            return len(buckets) - 1
        nodes, count = self._capacity.nodes, len(self._capacity.nodes)
        usable = as_mask(self._among, count) & (nodes.gpu_type[:count] == gpu_type)
        return int(nodes.gpus[:count][usable].max(initial=0))

    def limit(self, node: int) -> int:
        """Idle GPUs of a node that it can feed."""
        limits = [self._capacity.usable(node, self._shape).bit_count()]
        if self.matter:
            shape, free = self._shape, self._capacity.free_host(node)
            for left, need in zip(free, (shape.cpu_milli, shape.host_bytes), strict=True):
                if need:  # the most GPUs whose part of the need, rounded down, is not more than is left
                    limits.append(((left + 1) * shape.gpus - 1) // need)
        return min(limits)


def of_one_type(shape: Shape, types: Sequence[str], code: int, alone: bool = False) -> Shape:
    """What a job asks for, on GPUs of one type only, and ``alone`` on them if so."""
    # Capacities remember by a shape's number what it may run on, so this one needs a number of its own.
    return _narrowed(shape, -1 - ((shape.id * len(types) + code) * 2 + alone), types[code], alone)


@lru_cache(maxsize=4096)
def _narrowed(shape: Shape, number: int, gpu_type: str, alone: bool) -> Shape:
    narrow = replace(shape, id=number, gpu_types=(gpu_type,))
    if alone:
        narrow = replace(narrow, milli=WHOLE_GPU_MILLI, sharing=frozenset((Sharing.EXCLUSIVE,)))
    return narrow


def idle_nodes(capacity: Capacity, shape: Shape) -> NodeSet:
    """The nodes with an idle device, and CPUs and memory, for a shape."""
    nodes = 0
    for gpu_type in capacity.types_for(shape):
        nodes |= capacity.with_idle(gpu_type, 1, shape)
    return nodes & capacity.hosts(shape, shape.gpus) if nodes and shape.needs_host else nodes


def domains(capacity: Capacity, shape: Shape) -> list[NodeSet]:
    """The nodes of each value of the label in which the job's nodes must agree; those with preferred nodes first."""
    preferred, allowed = capacity.preferred(shape), capacity.allowed(shape)
    usable = [nodes for nodes in capacity.domains(shape.within) if nodes & allowed]
    return sorted(usable, key=lambda nodes: [not nodes & each for each in preferred])


def favoured(nodes: NodeSet, preferred: Preferences) -> int:
    """The first node of a non-empty set, of those that meet most preferences in their order."""
    for each in preferred:
        nodes = nodes & each or nodes
    return first(nodes)


def as_mask(nodes: NodeSet, count: int) -> Array:
    """A set of nodes as a boolean array."""
    packed = (nodes & ((1 << count) - 1)).to_bytes((count + 7) // 8, "little")
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=count, bitorder="little").view(np.bool_)


# -- devices of a node -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def lowest(devices: int, count: int) -> int:
    """The lowest ``count`` devices of a mask."""
    taken = 0
    for _ in range(count):
        low = devices & -devices
        taken |= low
        devices ^= low
    return taken


def pick_devices(capacity: Capacity, node: int, devices: int, count: int) -> int:
    """``count`` devices of a mask: within one NVLink group where the node has such groups, else the lowest."""
    links = capacity.nodes.specs[node].links
    return linked(devices, count, links) if links else lowest(devices, count)


@lru_cache(maxsize=65536)
def linked(devices: int, count: int, links: tuple[tuple[int, ...], ...]) -> int:
    """The lowest devices of the smallest group that is large enough, else of the largest groups in turn."""
    masks = [devices & sum(1 << device for device in group) for group in links]
    alone = [1 << device for device in range(devices.bit_length()) if not any(mask >> device & 1 for mask in masks)]
    groups = [mask for mask in (*masks, *(devices & each for each in alone)) if mask]
    enough = [mask for mask in groups if mask.bit_count() >= count]
    if enough:
        return lowest(min(enough, key=lambda mask: (mask.bit_count(), mask)), count)
    taken = 0
    for mask in sorted(groups, key=lambda mask: (-mask.bit_count(), mask)):
        taken |= lowest(mask, min(mask.bit_count(), count - taken.bit_count()))
    return taken


@lru_cache(maxsize=65536)
def on_one_node(node: int, devices: int) -> Placement:
    """Whole devices of one node."""
    return Placement((Grant(node, devices),))
