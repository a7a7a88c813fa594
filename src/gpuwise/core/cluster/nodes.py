"""The node table: what every node has, where it is, and how far its GPUs are from each other; and sets of nodes."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gpuwise.core.assignments import Where
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.tables import Array, Table
from gpuwise.core.units import whole_bytes

if TYPE_CHECKING:
    from gpuwise.core.job.shape import Shape


class Distance(enum.IntEnum):
    """How far apart two GPUs are."""

    DEVICE = 0
    """They are one and the same."""
    NVLINK = 1
    NODE = 2
    """On one node, over PCIe."""
    SWITCH = 3
    RACK = 4
    ZONE = 5
    FAR = 6
    """Nothing is known to be between them but the network."""


_SHARED_LABELS = (("switch", Distance.SWITCH), ("rack", Distance.RACK), ("zone", Distance.ZONE))


class NodeTable(Table):
    """One row per node; a node keeps its row while it is away. GPUs of one name, memory size and speed are one type."""

    COLUMNS: ClassVar[Mapping[str, tuple[str, float]]] = {
        "gpus": ("i4", 0),
        "cpus": ("f8", math.inf),
        "memory_bytes": ("f8", math.inf),
        "usd_per_hour": ("f8", math.nan),
        "gpu_type": ("i4", 0),
    }

    gpus: Array
    cpus: Array
    memory_bytes: Array
    usd_per_hour: Array
    gpu_type: Array

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        self.specs: list[NodeSpec] = []
        """What each node is, or was before it was removed."""
        self.removed: set[int] = set()
        """Rows of nodes that are not in the cluster now."""
        self.type_of: list[int] = []
        self.types: list[str] = []
        """Names of the GPU types; types that differ in memory or speed only have the same name."""
        self.type_memory_bytes: list[float] = []
        self.type_gpu_bytes: list[int] = []
        """The same in whole bytes, `UNLIMITED` where it is not known: what capacities count with."""
        self.type_speed: list[float] = []
        self._where: dict[Grant, Where] = {}
        self.type_nodes: list[int] = []
        """How many nodes in the cluster have each type."""
        self._type_codes: dict[tuple[str, float, float], int] = {}

    # -- nodes come and go ---------------------------------------------------------------------------------------

    def put(self, spec: NodeSpec) -> int:
        """Enters a node as it is now and returns its row: the one it had, if its name is known."""
        row = self.row_of.get(spec.name)
        if row is None:
            row = self.row_of[spec.name] = self.append({})
            self.names.append(spec.name)
            self.specs.append(spec)
            self.type_of.append(-1)
        elif row in self.removed:
            self.removed.discard(row)
        else:
            self.type_nodes[self.type_of[row]] -= 1
        code = self._type_code(spec)
        self._where.clear()
        self.specs[row], self.type_of[row] = spec, code
        self.type_nodes[code] += 1
        self.gpus[row], self.cpus[row], self.memory_bytes[row] = spec.gpus, spec.cpus, spec.memory_bytes
        self.usd_per_hour[row], self.gpu_type[row] = spec.usd_per_hour, code
        return row

    def remove(self, row: int) -> None:
        """Takes a node out of the cluster: it keeps its row and its name, and has nothing."""
        self.removed.add(row)
        self.type_nodes[self.type_of[row]] -= 1
        self.gpus[row] = self.cpus[row] = self.memory_bytes[row] = 0

    def _type_code(self, spec: NodeSpec) -> int:
        kind = (spec.gpu_type, spec.gpu_memory_bytes, spec.speed)
        code = self._type_codes.get(kind)
        if code is None:
            code = self._type_codes[kind] = len(self.types)
            self.types.append(spec.gpu_type)
            self.type_memory_bytes.append(spec.gpu_memory_bytes)
            self.type_gpu_bytes.append(whole_bytes(spec.gpu_memory_bytes))
            self.type_speed.append(spec.speed)
            self.type_nodes.append(0)
        return code

    # -- what there is -------------------------------------------------------------------------------------------

    def row(self, node: str | int) -> int | None:
        """The row of a node in the cluster by name, or by row as in older journals; None if there is no such node."""
        row = self.row_of.get(node) if isinstance(node, str) else node if 0 <= node < len(self) else None
        return None if row in self.removed else row

    def device(self, row: int, device: str | int) -> int | None:
        """The index of a GPU by its id (or by index, as in older journals); None if the node has no such GPU."""
        if isinstance(device, int):
            return device if 0 <= device < self.gpus.item(row) else None
        return self.specs[row].device_at(device)

    def present(self) -> Iterator[tuple[int, NodeSpec]]:
        """The nodes in the cluster, with their rows."""
        return ((row, spec) for row, spec in enumerate(self.specs) if row not in self.removed)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes in the cluster."""
        return int(self.gpus[: len(self)].sum())

    def memory_of(self, node: int) -> float:
        """Memory of each of a node's GPUs."""
        return self.type_memory_bytes[self.type_of[node]]

    def where(self, placement: Placement) -> tuple[Where, ...]:
        """A placement by the names of its nodes and the ids of its devices."""
        known, grants = self._where, placement.grants
        if len(grants) == 1:
            return (known.get(grants[0]) or self._locate(grants[0]),)
        return tuple([known.get(grant) or self._locate(grant) for grant in grants])

    def _locate(self, grant: Grant) -> Where:
        spec, mask = self.specs[grant.node], grant.devices
        ids = tuple(spec.device_id(device) for device in range(mask.bit_length()) if mask >> device & 1)
        found = self._where[grant] = Where(spec.name, ids, grant.slice_start)
        return found

    def largest_memory_bytes(self, shape: Shape) -> float:
        """Memory of the largest GPUs that a job may have, of which there are enough for it."""
        gpus = [0] * len(self.types)
        for row, code in enumerate(self.type_of):
            gpus[code] += self.gpus.item(row)
        kinds = zip(self.types, self.type_memory_bytes, gpus, strict=True)
        named = shape.gpu_types
        return max((size for name, size, n in kinds if n >= shape.gpus and (not named or name in named)), default=0.0)

    # -- how far apart -------------------------------------------------------------------------------------------

    def distance(self, one: tuple[int, int], other: tuple[int, int]) -> Distance:
        """How far apart two GPUs are, each a node and a device."""
        if one == other:
            return Distance.DEVICE
        (node, device), (other_node, other_device) = one, other
        if node == other_node:
            linked = any(device in group and other_device in group for group in self.specs[node].links)
            return Distance.NVLINK if linked else Distance.NODE
        ours, theirs = dict(self.specs[node].labels), dict(self.specs[other_node].labels)
        for key, distance in _SHARED_LABELS:
            if key in ours and ours[key] == theirs.get(key):
                return distance
        return Distance.FAR

    def spread(self, placement: Placement) -> Distance:
        """The largest distance between two GPUs of a placement."""
        devices = placement.devices()
        return max(
            (self.distance(one, other) for at, one in enumerate(devices) for other in devices[at + 1 :]),
            default=Distance.DEVICE,
        )


def node_table(cluster: ClusterSpec) -> NodeTable:
    """The nodes of a cluster as a table."""
    nodes = NodeTable()
    for node in cluster.nodes:
        nodes.put(node)
    return nodes


# -- sets of nodes -----------------------------------------------------------------------------------------------------

NodeSet = int
"""Nodes as an integer with one bit per node.

It is immutable, so a copy is free; the lowest set bit is the first node; and intersecting, say, "three idle GPUs" with
"enough CPUs" is one ``&``, a microsecond over 16,000 nodes.
"""
EVERY_NODE: NodeSet = -1
"""All nodes there are and will be: all bits set."""


def first(nodes: NodeSet) -> int:
    """The lowest node of a non-empty set."""
    return (nodes & -nodes).bit_length() - 1


def members(nodes: NodeSet) -> Iterator[int]:
    """The nodes of a set, lowest first."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low


def node_set(mask: Array) -> NodeSet:
    """The set of nodes where a boolean array is true."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")
