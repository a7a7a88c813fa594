"""GPUs that jobs share: what is left of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.whole_gpus import WholeGpus, replaced
from gpuwise.core.commands import Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI, remaining, whole_bytes

OPEN_ARRAYS = (("open_milli", "i4"), ("open_memory", "i8"), ("open_sharing", "i1"))


class SharedGpus(WholeGpus):
    """Devices that jobs share, and the memory that others use of any device."""

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self.open_milli: Array = np.zeros((0, 0), dtype="i4")
        """What is left of each device that is open to sharing; 0 on all others."""
        self.open_memory: Array = np.zeros((0, 0), dtype="i8")
        self.open_sharing: Array = np.zeros((0, 0), dtype="i1")
        """How an open device is shared; 0 (exclusive) where it is not open, or is shut."""
        self.claimed_memory: Mapping[tuple[int, int], int] = MappingProxyType({})
        """GPU memory that others than running jobs use, by node and device."""
        self._sharing_but_shut: Mapping[tuple[int, int], int] = {}

    def memory_left(self, node: int, device: int) -> int:
        """Memory of an empty device that others leave, in bytes; `UNLIMITED` where it is not known."""
        size = self.nodes.type_gpu_bytes[self.nodes.type_of[node]]
        return remaining(size, self.claimed_memory.get((node, device), 0)) if self.claimed_memory else size

    def usable(self, node: int, shape: Shape) -> int:
        """The idle devices of a node with enough memory left for a shape, as a bit mask."""
        idle = self.idle[node]
        if self.claimed_memory and (need := shape.gpu_bytes):
            for device in range(idle.bit_length()):
                if (node, device) in self.claimed_memory and self._left_for(shape, node, device) < need:
                    idle &= ~(1 << device)
        return idle

    def _left_for(self, shape: Shape, node: int, device: int) -> int:
        """Memory of an empty device that others than the job itself leave."""
        return self.memory_left(node, device) + self._parked(shape, node, device)

    def _parked(self, shape: Shape, node: int, device: int) -> int:
        """Memory of a device that a job's own parked processes keep: it is theirs again when they resume."""
        if not shape.parked:
            return 0
        at = (self.nodes.names[node], self.nodes.specs[node].device_id(device))
        kept = whole_bytes(sum(memory for *where, memory in shape.parked if tuple(where) == at))
        return min(kept, self.claimed_memory.get((node, device), 0))

    def _grow_open(self, count: int, devices: int) -> None:
        had, had_devices = self.open_milli.shape
        for name, dtype in OPEN_ARRAYS:
            grown = np.zeros((max(count, had), max(devices, had_devices)), dtype=dtype)
            grown[:had, :had_devices] = getattr(self, name)
            setattr(self, name, grown)
            self._borrowed -= {name}

    def _take_shares(self, placement: Placement, shape: Shape) -> None:
        sharing, milli = placement.sharing, placement.milli
        devices = placement.devices()
        if len(set(devices)) < len(devices):
            raise OverAllocationError(f"node {self.nodes.names[devices[0][0]]}: a device is named twice")
        for node, device in devices:
            if self.idle[node] >> device & 1 and self.up[node]:
                room, memory = WHOLE_GPU_MILLI, self._left_for(shape, node, device)
            elif self.open_sharing[node, device] == sharing and self.up[node]:
                room = int(self.open_milli[node, device])
                memory = self.open_memory.item(node, device) + self._parked(shape, node, device)
            else:
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: device {device} is not open to {sharing.name}"
                )
            if room < milli or memory < shape.gpu_bytes:
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: device {device} has {room}/1000 and {max(0, memory)} bytes "
                    f"left; {milli} and {shape.gpu_bytes} asked"
                )
        self._enter_shares(placement, shape)

    def _retake_shares(self, placement: Placement, shape: Shape) -> None:
        for node, device in placement.devices():
            shared_as = self._sharing_but_shut.get((node, device), self.open_sharing[node, device])
            room = self.open_milli[node, device] >= placement.milli and shared_as == placement.sharing
            if not (room or self.is_empty(node, device)):
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: device {device} is not open to {placement.sharing.name}"
                )
        self._enter_shares(placement, shape)

    def _enter_shares(self, placement: Placement, shape: Shape) -> None:
        milli_left, memory_left = self._own("open_milli"), self._own("open_memory")
        for node, device in placement.devices():
            if self.is_empty(node, device):
                self._occupy(node, 1 << device)
                milli_left[node, device] = WHOLE_GPU_MILLI
                memory_left[node, device] = self.memory_left(node, device)
                self._set_sharing(node, device, int(placement.sharing))
            milli_left[node, device] -= placement.milli
            memory_left[node, device] = remaining(memory_left.item(node, device), shape.gpu_bytes)

    def _give_shares(self, placement: Placement, shape: Shape) -> None:
        milli_left, memory_left = self._own("open_milli"), self._own("open_memory")
        for node, device in placement.devices():
            milli_left[node, device] += placement.milli
            memory_left[node, device] = remaining(memory_left.item(node, device), -shape.gpu_bytes)
            if milli_left[node, device] == WHOLE_GPU_MILLI:
                milli_left[node, device] = 0
                memory_left[node, device] = 0
                self._set_sharing(node, device, 0)
                self._set_idle(node, self.idle[node] | 1 << device)

    # -- what others use -----------------------------------------------------------------------------------------

    def _set_sharing(self, node: int, device: int, sharing: int) -> None:
        """How a device is shared from now on; one that is shut says so only when it is not shut any more."""
        where, how = (node, device), self._own("open_sharing")
        shut = bool(sharing and self.shut.get(node, 0) >> device & 1)
        if shut or where in self._sharing_but_shut:
            self._sharing_but_shut = replaced(self._sharing_but_shut, where, sharing if shut else None)
        how[node, device] = 0 if shut else sharing

    def _is_open(self, node: int, device: int) -> bool:
        return bool(self.open_sharing[node, device]) or (node, device) in self._sharing_but_shut

    def _follow_shut_sharing(self, node: int, device: int) -> None:
        """Brings a device that jobs share in step with whether it is shut."""
        if self._is_open(node, device):
            sharing = self._sharing_but_shut.get((node, device), int(self.open_sharing[node, device]))
            self._set_sharing(node, device, sharing)

    def _claim_memory(self, node: int, claimed: dict[int, int]) -> None:
        """What others use of the memory of a node's devices, of all there are."""
        before = self.claimed_memory
        after = {where: memory for where, memory in before.items() if where[0] != node}
        after |= {(node, device): memory for device, memory in claimed.items() if memory > 0}
        self.claimed_memory = MappingProxyType(after)
        left = self._own("open_memory")
        for device in range(left.shape[1]):
            if self._is_open(node, device):
                more = after.get((node, device), 0) - before.get((node, device), 0)
                left[node, device] = remaining(left.item(node, device), more)
