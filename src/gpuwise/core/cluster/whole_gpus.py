"""Whole GPUs: which are idle, and the indexes by which they are found."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar, cast

from gpuwise.core.cluster.nodes import NodeSet, NodeTable
from gpuwise.core.commands import Grant
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.tables import Array

K = TypeVar("K")
V = TypeVar("V")


class WholeGpus:
    """Which devices of every node are idle.

    A device is shut while it is lost, or in use by others than gpuwise: it is not idle, also when its last job leaves.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.idle: list[int] = []
        """Per node, the idle devices, as a bit mask."""
        self.by_idle: list[list[NodeSet]] = []
        """``by_idle[type][k]``: the nodes of that GPU type that take jobs and have exactly ``k`` idle devices."""
        self.idle_total: list[int] = []
        """Idle devices of each GPU type on nodes that take jobs."""
        self.up: list[bool] = []
        """Per node, whether it takes jobs: it is in the cluster, not lost and not drained."""
        self.down: frozenset[int] = frozenset()
        """Nodes that are lost."""
        self.shut: Mapping[int, int] = MappingProxyType({})
        """Devices that are shut, as bit masks; replaced whole, so that copies may share it."""
        self._idle_but_shut: Mapping[int, int] = {}
        self._bits: list[NodeSet] = []
        self._type_of = nodes.type_of
        self._borrowed: frozenset[str] = frozenset()

    # -- nodes ---------------------------------------------------------------------------------------------------

    def set_up(self, node: int, up: bool) -> None:
        """Puts a lost node back in service, or takes it out."""
        self.down = self.down - {node} if up else self.down | {node}
        self._list(node)

    def ignore_drains(self) -> None:
        """Counts drained nodes as if they took jobs: for what a cluster could do."""
        for row, _ in self.nodes.present():
            if not self.up[row] and row not in self.down:
                self._set_listed(row, True)

    def _list(self, node: int) -> None:
        """Enters a node in the indexes if it takes jobs, else takes it out."""
        nodes = self.nodes
        up = node not in self.down and node not in nodes.removed and nodes.specs[node].schedulable
        if self.up[node] != up:
            self._set_listed(node, up)

    def _set_listed(self, node: int, up: bool) -> None:
        self.up[node] = up
        gpu_type, count = self.nodes.type_of[node], self.idle[node].bit_count()
        self.by_idle[gpu_type][count] ^= self._bits[node]
        self.idle_total[gpu_type] += count if up else -count

    def _make_idle(self, node: int) -> None:
        """Enters an empty node as the node table has it."""
        nodes = self.nodes
        while len(self.by_idle) < len(nodes.types):
            self.by_idle.append([])
            self.idle_total.append(0)
        if node == len(self.idle):
            self._bits.append(1 << node)
            self.idle.append(0)
            self.up.append(False)
        self.idle[node] = (1 << nodes.gpus.item(node)) - 1
        buckets = self.by_idle[nodes.type_of[node]]
        buckets += [0] * (nodes.gpus.item(node) + 1 - len(buckets))
        self._list(node)

    def _drop_idle(self, node: int) -> None:
        """Takes a node out before its row changes."""
        if self.up[node]:
            self._set_listed(node, False)
        self.idle[node] = 0
        self.down -= {node}
        self.shut = replaced(self.shut, node)
        self._idle_but_shut = replaced(self._idle_but_shut, node)

    def _trim(self, gpu_type: int) -> None:
        """Drops sizes that no node of a type has any more: placements read the largest off the index."""
        nodes = self.nodes
        largest = max((spec.gpus for row, spec in nodes.present() if nodes.type_of[row] == gpu_type), default=-1)
        del self.by_idle[gpu_type][largest + 1 :]

    # -- devices -------------------------------------------------------------------------------------------------

    def at_least(self, gpu_type: int, count: int) -> NodeSet:
        """The nodes of a type with ``count`` or more idle devices, whatever a job requires of nodes."""
        found = 0
        for nodes in self.by_idle[gpu_type][count:]:
            found |= nodes
        return found

    def is_empty(self, node: int, device: int) -> bool:
        """Whether no job of gpuwise is on a whole device, idle or shut."""
        return bool((self.idle[node] | self._idle_but_shut.get(node, 0)) >> device & 1)

    def _set_shut(self, node: int, devices: int) -> None:
        empty = self.idle[node] | self._idle_but_shut.get(node, 0)
        self.shut = replaced(self.shut, node, devices or None)
        self._idle_but_shut = replaced(self._idle_but_shut, node)
        self._set_idle(node, empty)

    def _set_idle(self, node: int, devices: int) -> None:
        """Makes exactly these devices of a node idle; those of them that are shut will be when they are not."""
        if self.shut and (shut := self.shut.get(node, 0)) & devices:
            behind = self._idle_but_shut.get(node, 0) | devices & shut
            self._idle_but_shut = replaced(self._idle_but_shut, node, behind)
            devices &= ~shut
        before, after = self.idle[node].bit_count(), devices.bit_count()
        self.idle[node] = devices
        if self.up[node] and before != after:
            gpu_type, bit = self._type_of[node], self._bits[node]
            buckets = self.by_idle[gpu_type]
            buckets[before] ^= bit
            buckets[after] ^= bit
            self.idle_total[gpu_type] += after - before

    def _occupy(self, node: int, devices: int) -> None:
        """Takes empty devices, shut or not."""
        if self._idle_but_shut and (behind := self._idle_but_shut.get(node, 0)) & devices:
            self._idle_but_shut = replaced(self._idle_but_shut, node, behind & ~devices)
        self._set_idle(node, self.idle[node] & ~devices)

    def _take_whole(self, grants: tuple[Grant, ...]) -> None:
        if len(grants) == 1:
            node, devices, _ = grants[0]
            idle = self.idle[node]
            if devices & idle == devices and self.up[node]:
                self._set_idle(node, idle ^ devices)
                return
        taken: dict[int, int] = {}
        for node, devices, _ in grants:
            free = self.idle[node] & ~taken.get(node, 0)
            taken[node] = taken.get(node, 0) | devices
            if devices & ~free or not self.up[node]:
                raise OverAllocationError(f"node {self.nodes.names[node]}: devices {devices:#x} are not all idle")
        for node, devices, _ in grants:
            self._set_idle(node, self.idle[node] & ~devices)

    def _retake_whole(self, grants: tuple[Grant, ...]) -> None:
        for node, devices, _ in grants:
            if devices & ~(self.idle[node] | self._idle_but_shut.get(node, 0)):
                raise OverAllocationError(f"node {self.nodes.names[node]}: devices {devices:#x} are not all empty")
        for node, devices, _ in grants:
            self._occupy(node, devices)

    # -- copy on write -------------------------------------------------------------------------------------------

    def _own(self, name: str) -> Array:
        if name in self._borrowed:
            self._borrowed -= {name}
            setattr(self, name, getattr(self, name).copy())
        return cast(Array, getattr(self, name))


def replaced(mapping: Mapping[K, V], key: K, value: V | None = None) -> Mapping[K, V]:
    """A mapping with another value at a key, or without that key if there is none; copies may share the old one."""
    made = {each: known for each, known in mapping.items() if each != key}
    if value is not None:
        made[key] = value
    return MappingProxyType(made)
