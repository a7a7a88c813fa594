"""What is free: idle devices by node, shares of open devices, MIG slices, CPUs and memory.

Sets of nodes are integers with one bit a node. They are immutable, so a copy is free; the lowest set bit is the first
node; and intersecting, say, "three idle GPUs" with "enough CPUs" is one ``&``, a microsecond over 16,000 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from gpuwise.core.commands import Grant, MigSlice, Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.jobs import Shape
from gpuwise.core.nodes import NodeTable
from gpuwise.core.spec import Sharing
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI

NodeSet = int


class OverAllocationError(GpuwiseError):
    """A placement that takes what is not free."""


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


def _snapped(free: float, total: float) -> float:
    """What is free, with what rounding has added up to taken off when all is."""
    return total if free > total * (1 - 1e-9) else free


class Capacity:
    """Free resources of every node, with the indexes that placements are found by."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.idle: list[int] = []
        """Per node, the devices that nobody holds, as a bit mask."""
        self.by_idle: list[list[NodeSet]] = []
        """``by_idle[type][k]``: the nodes of that GPU type with exactly ``k`` idle devices."""
        self.idle_total: list[int] = []
        """Idle devices of each GPU type."""
        self.up: list[bool] = []
        self.lost: dict[int, int] = {}
        """Devices out of service on nodes that are in service, as bit masks."""
        self.free_cpus: Array = np.empty(0)
        self.free_memory: Array = np.empty(0)
        self.open_milli: Array = np.zeros((0, 0), dtype="i4")
        """What is left of each device that is open to sharing; 0 on all others."""
        self.open_memory: Array = np.zeros((0, 0))
        self.open_sharing: Array = np.zeros((0, 0), dtype="i1")
        """How an open device is shared; 0 (exclusive) where it is not open."""
        self.layouts: dict[tuple[int, int], tuple[MigSlice, ...]] = {}
        """Slices of the partitioned devices."""
        self.free_slices: dict[tuple[int, int], tuple[MigSlice, ...]] = {}
        self._bits: list[NodeSet] = []
        self._types_of: dict[int, tuple[int, ...]] = {}
        self._borrowed: set[str] = set()
        for node in range(len(nodes)):
            self.add_node(node)

    # -- nodes come and go ---------------------------------------------------------------------------------------

    def add_node(self, node: int) -> None:
        """Makes room for the next row of the node table."""
        nodes = self.nodes
        gpus = nodes.gpus.item(node)
        while len(self.by_idle) < len(nodes.types):
            self.by_idle.append([])
            self.idle_total.append(0)
        self._bits.append(1 << node)
        self.idle.append((1 << gpus) - 1)
        self.up.append(False)
        if node >= len(self.free_cpus):
            self._grow(max(len(nodes), node + 1))
        self._borrowed -= {"free_cpus", "free_memory", "open_milli", "open_memory", "open_sharing"}
        self.free_cpus[node] = nodes.cpus[node]
        self.free_memory[node] = nodes.memory_bytes[node]
        self._types_of.clear()
        self.set_up(node, True)

    def _grow(self, count: int) -> None:
        devices = max(int(self.nodes.gpus[: len(self.nodes)].max(initial=0)), self.open_milli.shape[1])
        had, had_devices = self.open_milli.shape
        self.free_cpus = np.concatenate([self.free_cpus, np.zeros(count - len(self.free_cpus))])
        self.free_memory = np.concatenate([self.free_memory, np.zeros(count - len(self.free_memory))])
        for name, dtype in (("open_milli", "i4"), ("open_memory", "f8"), ("open_sharing", "i1")):
            grown = np.zeros((count, devices), dtype=dtype)
            grown[:had, :had_devices] = getattr(self, name)
            setattr(self, name, grown)

    def set_up(self, node: int, up: bool) -> None:
        """Puts a node in service, or takes it out."""
        if self.up[node] == up:
            return
        self.up[node] = up
        gpu_type, count = self.nodes.type_of[node], self.idle[node].bit_count()
        buckets = self.by_idle[gpu_type]
        while len(buckets) <= self.nodes.gpus.item(node):
            buckets.append(0)
        buckets[count] ^= self._bits[node]
        self.idle_total[gpu_type] += count if up else -count

    def set_device_up(self, node: int, device: int, up: bool) -> None:
        """Puts an empty device back in service, or takes it out."""
        bit, where = 1 << device, (node, device)
        self.lost = {**self.lost, node: self.lost.get(node, 0) & ~bit | (0 if up else bit)}
        if where in self.layouts:
            _, free = self._own_slices()
            free[where] = self.layouts[where] if up else ()
        else:
            self._set_idle(node, self.idle[node] | bit if up else self.idle[node] & ~bit)

    # -- what would fit ------------------------------------------------------------------------------------------

    def types_for(self, shape: Shape) -> tuple[int, ...]:
        """The GPU types a shape may run on: those it names, with enough memory on the device."""
        known = self._types_of.get(shape.id)
        if known is None:
            nodes = self.nodes
            known = self._types_of[shape.id] = tuple(
                code
                for code, name in enumerate(nodes.types)
                if (not shape.gpu_types or name in shape.gpu_types)
                and nodes.type_memory_bytes[code] >= shape.gpu_memory_bytes
            )
        return known

    def at_least(self, gpu_type: int, count: int) -> NodeSet:
        """The nodes of a type with ``count`` or more idle devices."""
        found = 0
        for nodes in self.by_idle[gpu_type][count:]:
            found |= nodes
        return found

    def hosts(self, shape: Shape, gpus: int) -> NodeSet:
        """The nodes with CPUs and memory for ``gpus`` of a shape's GPUs."""
        part = gpus / shape.gpus if shape.gpus else 1.0
        enough = (self.free_cpus >= shape.cpus * part - 1e-9) & (self.free_memory >= shape.memory_bytes * part - 1e-3)
        return node_set(enough)

    # -- taking and giving ---------------------------------------------------------------------------------------

    def fork(self) -> Capacity:
        """A copy to try things on; large arrays are copied when they are first written to."""
        twin = object.__new__(Capacity)
        twin.__dict__.update(self.__dict__)
        twin.idle = self.idle.copy()
        twin.by_idle = [buckets.copy() for buckets in self.by_idle]
        twin.idle_total = self.idle_total.copy()
        twin._borrowed = {
            "free_cpus",
            "free_memory",
            "open_milli",
            "open_memory",
            "open_sharing",
            "layouts",
            "free_slices",
        }
        self._borrowed = set(twin._borrowed)
        return twin

    def take(self, placement: Placement, shape: Shape) -> None:
        """Hands out a placement; fails if any of it is not free, and then leaves nothing changed."""
        on_host = shape.cpus > 0 or shape.memory_bytes > 0
        if on_host:
            self._check_host(placement, shape)
        if placement.sharing is Sharing.EXCLUSIVE:
            self._take_whole(placement.grants)
        elif placement.sharing is Sharing.MIG:
            self._take_slices(placement, shape)
        else:
            self._take_shares(placement, shape)
        if on_host:
            self._move_host(placement, shape, -1.0)

    def give(self, placement: Placement, shape: Shape) -> None:
        """Takes a placement back."""
        if placement.sharing is Sharing.EXCLUSIVE:
            for node, devices, _ in placement.grants:
                self._set_idle(node, self.idle[node] | devices)
        elif placement.sharing is Sharing.MIG:
            self._give_slices(placement)
        else:
            self._give_shares(placement, shape)
        if shape.cpus or shape.memory_bytes:
            self._move_host(placement, shape, 1.0)

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

    def _set_idle(self, node: int, devices: int) -> None:
        if self.lost:
            devices &= ~self.lost.get(node, 0)
        before, after = self.idle[node].bit_count(), devices.bit_count()
        self.idle[node] = devices
        if self.up[node] and before != after:
            gpu_type, bit = self.nodes.type_of[node], self._bits[node]
            buckets = self.by_idle[gpu_type]
            buckets[before] ^= bit
            buckets[after] ^= bit
            self.idle_total[gpu_type] += after - before

    def _check_host(self, placement: Placement, shape: Shape) -> None:
        gpus: dict[int, int] = {}
        for node, devices, _ in placement.grants:
            gpus[node] = gpus.get(node, 0) + devices.bit_count()
        for node, count in gpus.items():
            part = count / shape.gpus if shape.gpus else 1.0
            if (
                self.free_cpus[node] < shape.cpus * part - 1e-6
                or self.free_memory[node] < shape.memory_bytes * part - 1.0
            ):
                raise OverAllocationError(f"node {self.nodes.names[node]}: not enough CPUs or memory left")

    def _move_host(self, placement: Placement, shape: Shape, sign: float) -> None:
        cpus, memory = self._own("free_cpus"), self._own("free_memory")
        for node, devices, _ in placement.grants:
            part = sign * (devices.bit_count() / shape.gpus if shape.gpus else 1.0)
            cpus[node] = _snapped(cpus[node] + shape.cpus * part, self.nodes.cpus[node])
            memory[node] = _snapped(memory[node] + shape.memory_bytes * part, self.nodes.memory_bytes[node])

    def _take_shares(self, placement: Placement, shape: Shape) -> None:
        sharing, milli = placement.sharing, placement.milli
        devices = placement.devices()
        if len(set(devices)) < len(devices):
            raise OverAllocationError(f"node {self.nodes.names[devices[0][0]]}: a device is named twice")
        for node, device in devices:
            if self.idle[node] >> device & 1 and self.up[node]:
                room, memory = WHOLE_GPU_MILLI, self.nodes.memory_of(node)
            elif self.open_sharing[node, device] == sharing:
                room, memory = int(self.open_milli[node, device]), float(self.open_memory[node, device])
            else:
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: device {device} is not open to {sharing.name}"
                )
            if room < milli or memory < shape.gpu_memory_bytes:
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: device {device} has {room}/1000 left, {milli} asked"
                )
        milli_left, memory_left, how = self._own("open_milli"), self._own("open_memory"), self._own("open_sharing")
        for node, device in devices:
            if self.idle[node] >> device & 1:
                self._set_idle(node, self.idle[node] & ~(1 << device))
                milli_left[node, device] = WHOLE_GPU_MILLI
                memory_left[node, device] = self.nodes.memory_of(node)
                how[node, device] = sharing
            milli_left[node, device] -= milli
            memory_left[node, device] -= shape.gpu_memory_bytes

    def _give_shares(self, placement: Placement, shape: Shape) -> None:
        milli_left, memory_left, how = self._own("open_milli"), self._own("open_memory"), self._own("open_sharing")
        for node, device in placement.devices():
            milli_left[node, device] += placement.milli
            memory_left[node, device] += shape.gpu_memory_bytes
            if milli_left[node, device] == WHOLE_GPU_MILLI:
                milli_left[node, device] = 0
                memory_left[node, device] = 0.0
                how[node, device] = 0
                self._set_idle(node, self.idle[node] | 1 << device)

    # -- MIG -----------------------------------------------------------------------------------------------------

    def repartition(self, node: int, device: int, slices: tuple[MigSlice, ...]) -> None:
        """Cuts an empty device into slices, or makes it whole."""
        where = (node, device)
        held = self.layouts.get(where, ())
        empty = len(self.free_slices.get(where, ())) == len(held) if held else bool(self.idle[node] >> device & 1)
        if not empty:
            raise OverAllocationError(
                f"node {self.nodes.names[node]}: device {device} is in use and cannot be repartitioned"
            )
        layouts, free = self._own_slices()
        layouts.pop(where, None)
        free.pop(where, None)
        if slices:
            layouts[where] = free[where] = slices
            self._set_idle(node, self.idle[node] & ~(1 << device))
        else:
            self._set_idle(node, self.idle[node] | 1 << device)

    def slice_at(self, node: int, device: int, start: int) -> MigSlice | None:
        """The slice of a partitioned device that begins at ``start``."""
        return next((each for each in self.layouts.get((node, device), ()) if each.start == start), None)

    def _take_slices(self, placement: Placement, shape: Shape) -> None:
        wanted = []
        for grant in placement.grants:
            where = (grant.node, grant.devices.bit_length() - 1)
            piece = self.slice_at(*where, grant.slice_start)
            usable = self.up[grant.node] and piece is not None and piece.memory_bytes >= shape.gpu_memory_bytes
            if piece is None or not usable or piece not in self.free_slices[where] or (where, piece) in wanted:
                raise OverAllocationError(
                    f"node {self.nodes.names[grant.node]}: no free slice at {where[1]}/{grant.slice_start}"
                )
            wanted.append((where, piece))
        _, free = self._own_slices()
        for where, piece in wanted:
            free[where] = tuple(each for each in free[where] if each != piece)

    def _give_slices(self, placement: Placement) -> None:
        layouts, free = self._own_slices()
        for grant in placement.grants:
            where = (grant.node, grant.devices.bit_length() - 1)
            back = {grant.slice_start, *(each.start for each in free[where])}
            free[where] = tuple(each for each in layouts[where] if each.start in back)

    # -- copy on write -------------------------------------------------------------------------------------------

    def _own(self, name: str) -> Array:
        if name in self._borrowed:
            self._borrowed.discard(name)
            setattr(self, name, getattr(self, name).copy())
        return cast(Array, getattr(self, name))

    def _own_slices(
        self,
    ) -> tuple[dict[tuple[int, int], tuple[MigSlice, ...]], dict[tuple[int, int], tuple[MigSlice, ...]]]:
        if "layouts" in self._borrowed:
            self._borrowed -= {"layouts", "free_slices"}
            self.layouts, self.free_slices = self.layouts.copy(), self.free_slices.copy()
        return self.layouts, self.free_slices
