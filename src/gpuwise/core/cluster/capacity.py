"""What is free on every node: whole GPUs, shared ones, MIG slices, CPUs and memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from gpuwise.core.cluster.eligible import EligibleNodes
from gpuwise.core.cluster.host import HostResources
from gpuwise.core.cluster.mig_slices import MigSlices
from gpuwise.core.cluster.nodes import NodeTable, members
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.cluster.whole_gpus import replaced
from gpuwise.core.commands import Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.needs import EXCLUSIVE, Sharing
from gpuwise.core.job.shape import Shape, host_needs
from gpuwise.core.quick import copier
from gpuwise.core.units import cpu_milli, whole_bytes

_ARRAYS = ("free_cpu_milli", "free_host_bytes", "open_milli", "open_memory", "open_sharing")
_SHARED = frozenset((*_ARRAYS, "layouts", "free_slices"))
"""What copies share until one of them writes to it."""


class Claim(NamedTuple):
    """What others than running jobs use of a node now."""

    devices: tuple[tuple[int, float, bool], ...] = ()
    """Device, memory in use there, and whether another process computes there, so that no job should."""
    cpus: float = 0.0
    memory_bytes: float = 0.0

    def of(self, kept: dict[int, int]) -> Claim:
        """The same claim on a node whose devices have moved."""
        return self._replace(devices=tuple((kept[each[0]], *each[1:]) for each in self.devices if each[0] in kept))


class Capacity(EligibleNodes, MigSlices, HostResources):
    """Free resources of every node, with the indexes that placements are found by."""

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self.lost: Mapping[int, int] = MappingProxyType({})
        """Devices out of service, as bit masks."""
        self.claims: Mapping[int, Claim] = MappingProxyType({})
        """What others use, by node."""
        for node in range(len(nodes)):
            self.add_node(node)

    # -- nodes are added, changed and removed --------------------------------------------------------------------

    def add_node(self, node: int) -> None:
        """Makes room for a row of the node table that is new, or was removed before."""
        self._reset_host(node)
        if node >= len(self.open_milli) or self.nodes.gpus.item(node) > self.open_milli.shape[1]:
            self._grow_open(len(self.nodes), int(self.nodes.gpus[: len(self.nodes)].max(initial=0)))
        self._make_idle(node)
        self._clear_eligible()

    def remove_node(self, node: int) -> None:
        """Takes a node on which nothing is placed out of the table."""
        self._empty(node)
        self.nodes.remove(node)
        self._trim(self.nodes.type_of[node])
        self._reset_host(node)
        self._clear_eligible()

    def change_node(self, node: int, spec: NodeSpec) -> None:
        """Makes a node on which nothing is placed another; devices that stay keep their slices, losses and claims."""
        kept = self.nodes.specs[node].kept_devices(spec)
        down, lost, claim = node in self.down, self.lost.get(node, 0), self.claims.get(node)
        layouts = {device: cut for (each, device), cut in self.layouts.items() if each == node}
        before = self.nodes.type_of[node]
        self._empty(node)
        self.nodes.put(spec)
        self._trim(before)
        self.add_node(node)
        for device, cut in layouts.items():
            if device in kept:
                self.repartition(node, kept[device], cut)
        for device, moved in kept.items():
            if lost >> device & 1:
                self.set_device_up(node, moved, False)
        if claim is not None:
            self.set_claim(node, claim.of(kept))
        if down:
            self.set_up(node, False)

    def _empty(self, node: int) -> None:
        self.lost = replaced(self.lost, node)
        self.set_claim(node, Claim())
        self._shut_devices(node)
        for where in [where for where in self.layouts if where[0] == node]:
            self.repartition(*where, ())
        self._drop_idle(node)

    def set_device_up(self, node: int, device: int, up: bool) -> None:
        """Puts an empty device back in service, or takes it out."""
        mask = self.lost.get(node, 0) & ~(1 << device) | (0 if up else 1 << device)
        self.lost = replaced(self.lost, node, mask or None)
        self._shut_devices(node)

    def set_claim(self, node: int, claim: Claim) -> None:
        """Sets what others use of a node now; jobs keep what they have until they leave."""
        if claim == self.claims.get(node, Claim()):
            return
        self.claims = replaced(self.claims, node, claim if claim != Claim() else None)
        self._claim_memory(node, {device: whole_bytes(memory) for device, memory, _ in claim.devices})
        self._claim_host(node, (cpu_milli(claim.cpus), whole_bytes(claim.memory_bytes)))
        self._shut_devices(node)

    def _shut_devices(self, node: int) -> None:
        mask = self.lost.get(node, 0)
        if node in self.claims:
            for device, _, exclusive in self.claims[node].devices:
                mask |= exclusive << device
        changed = mask ^ self.shut.get(node, 0)
        self._set_shut(node, mask)
        for device in members(changed):
            self._follow_shut_sharing(node, device)
            self._follow_shut_slices(node, device)

    # -- placements ----------------------------------------------------------------------------------------------

    def fork(self) -> Capacity:
        """A copy to try things on; large arrays are copied when they are first written to."""
        twin = object.__new__(Capacity)
        if self._borrowed is not _SHARED:
            self._borrowed = _SHARED
            for name in _ARRAYS:  # writing to one takes a copy
                getattr(self, name).flags.writeable = False
        _copy(self, twin)
        twin.idle, twin.up = self.idle.copy(), self.up.copy()
        twin.by_idle = [buckets.copy() for buckets in self.by_idle]
        twin.idle_total = self.idle_total.copy()
        return twin

    def take(self, placement: Placement, shape: Shape) -> None:
        """Allocates a placement; fails, and changes nothing, if any of it is not free."""
        needs = self._checked_host(placement, shape) if shape.needs_host else None
        if placement.sharing is EXCLUSIVE:
            if self.claimed_memory:
                self._check_memory(placement, shape)
            self._take_whole(placement.grants)
        elif placement.sharing is Sharing.MIG:
            self._take_slices(placement, shape)
        else:
            self._take_shares(placement, shape)
        if needs is not None:
            self._use_host(needs)

    def retake(self, placement: Placement, shape: Shape) -> None:
        """Undoes `give`: allocates again what a job had, even where a drain or a claim lets no other job start.

        Fails, and changes nothing, if another job has it now.
        """
        if placement.sharing is EXCLUSIVE:
            self._retake_whole(placement.grants)
        elif placement.sharing is Sharing.MIG:
            self._retake_slices(placement)
        else:
            self._retake_shares(placement, shape)
        if shape.needs_host:
            self._keep_apart(placement)
            self._use_host(host_needs(placement, shape))

    def retake_from(
        self, origin: Capacity, placement: Placement, shape: Shape, newcomers: Collection[int] = ()
    ) -> None:
        """Allocates again what a job has in ``origin``; fails if what was allocated since does not leave enough.

        Where a claim has left less than nothing, that does not matter as long as no job is new on the node
        (``newcomers``): a new job must find room beside all others.
        """
        try:
            self.take(placement, shape)
            return
        except OverAllocationError:  # drained, claimed by others, or allocated: only the first two do not matter
            self.retake(placement, shape)
        if self._is_overdrawn(placement, origin, newcomers):
            self.give(placement, shape)
            raise OverAllocationError(f"node {self.nodes.names[placement.nodes[0]]}: other jobs have part of it now")

    def _is_overdrawn(self, placement: Placement, origin: Capacity, newcomers: Collection[int]) -> bool:
        """Whether less is left where a placement is than nothing, or than was left in the first place."""

        def least(node: int, was: int) -> int:
            return 0 if node in newcomers else min(0, was)

        for node in placement.nodes:
            claims = self.claimed_host.get(node, (0, 0))
            rooms = zip(self.left(node), origin.left(node), claims, strict=True)
            if any(now - claim < least(node, was - claim) for now, was, claim in rooms):
                return True
        if placement.sharing in (Sharing.EXCLUSIVE, Sharing.MIG):
            return False
        return any(self.open_memory[at] < least(at[0], origin.open_memory[at]) for at in placement.devices())

    def give(self, placement: Placement, shape: Shape) -> None:
        """Frees a placement."""
        if placement.sharing is EXCLUSIVE:
            for node, devices, _ in placement.grants:
                self._set_idle(node, self.idle[node] | devices)
        elif placement.sharing is Sharing.MIG:
            self._give_slices(placement)
        else:
            self._give_shares(placement, shape)
        if shape.needs_host:
            self._use_host(host_needs(placement, shape), -1)

    def _check_memory(self, placement: Placement, shape: Shape) -> None:
        for node, devices, _ in placement.grants:
            if devices & self.idle[node] & ~self.usable(node, shape):
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: others use so much memory of devices {devices:#x} that "
                    f"{shape.gpu_bytes} bytes are not left on each"
                )


_copy = copier(vars(Capacity(NodeTable())))
