"""Where on the cluster: placements that policies share.

A placer finds room for a gang or says there is none. Whole GPUs go by the node index: for each GPU type a shape may run
on, in the order of the cluster, the first that holds the gang. Fractions of a GPU go to devices open to sharing, or
open an idle one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import EVERY_NODE, NodeSet, first, members
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import ON_ONE_NODE, Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI


@lru_cache(maxsize=65536)
def lowest(devices: int, count: int) -> int:
    """The lowest ``count`` devices of a mask."""
    taken = 0
    for _ in range(count):
        low = devices & -devices
        taken |= low
        devices ^= low
    return taken


def joined(capacity: Capacity, node: int, devices: int, count: int) -> int:
    """``count`` devices of a mask: within one NVLink group where the node has such groups, else the lowest."""
    links = capacity.nodes.specs[node].links
    return _linked(devices, count, links) if links else lowest(devices, count)


@lru_cache(maxsize=65536)
def _linked(devices: int, count: int, links: tuple[tuple[int, ...], ...]) -> int:
    """The lowest of the smallest group that is enough; of the largest groups in turn where none is."""
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


Preferences = tuple[NodeSet, ...]
NodeChoice = Callable[[list[NodeSet], int, Preferences], int]
"""The node, among those by number of idle GPUs, that gets so many; of equals a preferred one; -1 for none."""
NodeOrder = Callable[[Capacity, int, int, "Hosts"], Iterator[tuple[int, int]]]
"""Nodes in the order a placement prefers them, each with how many GPUs to take there."""


class Hosts:
    """The nodes that a gang may have, and how many of its GPUs their CPUs and memory can feed."""

    def __init__(self, capacity: Capacity, shape: Shape, among: NodeSet = EVERY_NODE) -> None:
        self._capacity = capacity
        self._shape = shape
        self._among = among & capacity.allowed(shape)
        self.matter = shape.needs_host
        self.preferred = capacity.preferred(shape)

    def with_room(self, gpus: int) -> NodeSet:
        """The nodes that can feed so many."""
        return self._capacity.hosts(self._shape, gpus) & self._among if self.matter else self._among

    def buckets(self, gpu_type: int) -> list[NodeSet]:
        """The nodes of a GPU type, by how many idle GPUs they have for the gang."""
        return self._capacity.buckets(gpu_type, self._shape, self._among)

    def node_size(self, gpu_type: int) -> int:
        """GPUs of the largest node of a type that the gang may have."""
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


class WholeGpus:
    """Finds whole GPUs: on one node if the gang fits on one, else over several in a placement's own order."""

    only_reads = True
    """That it changes nothing of the capacity is tested, so it is shown the cluster's own and not a guarded one."""

    def __init__(self, choose: NodeChoice, spill: NodeOrder, share: ShareChoice) -> None:
        self._choose = choose
        self._spill = spill
        self._share = share

    def __call__(self, capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
        """Room for ``gpus`` GPUs of a shape, or none."""
        if not shape.whole and gpus and sharing_of(shape) is not Sharing.EXCLUSIVE:
            return on_slice(capacity, shape) if sharing_of(shape) is Sharing.MIG else self._share(capacity, shape)
        for gpu_type in capacity.types_for(shape):
            if capacity.idle_total[gpu_type] >= gpus:
                found = self._on_type(capacity, shape, gpus, gpu_type)
                if found is not None:
                    return found if shape.alone else _not_alone(found, shape)
        return None

    def _on_type(self, capacity: Capacity, shape: Shape, gpus: int, gpu_type: int) -> Placement | None:
        plain = shape.any_node and not capacity.claimed_memory  # by far the most common
        buckets = capacity.by_idle[gpu_type] if plain else capacity.buckets(gpu_type, shape)
        if gpus < len(buckets):
            if shape.needs_host:
                hosts = capacity.hosts(shape, gpus)
                buckets = [nodes & hosts for nodes in buckets]
            preferred = () if plain else capacity.preferred(shape)
            node = self._choose(buckets, gpus, preferred)
            if node < 0 and shape.within == ON_ONE_NODE:  # also where a placement would rather have several
                node = _emptiest_node(buckets, gpus, preferred)
            if node >= 0:
                usable = capacity.idle[node] if plain else capacity.usable(node, shape)
                links = capacity.nodes.specs[node].links
                return on_one_node(node, _linked(usable, gpus, links) if links else lowest(usable, gpus))
        if not shape.within:
            return self._over_nodes(capacity, shape, gpus, gpu_type, EVERY_NODE)
        domains = () if shape.within == ON_ONE_NODE else _liked_first(capacity.domains(shape.within), capacity, shape)
        found = (self._over_nodes(capacity, shape, gpus, gpu_type, domain) for domain in domains)
        return next((placement for placement in found if placement is not None), None)

    def _over_nodes(
        self, capacity: Capacity, shape: Shape, gpus: int, gpu_type: int, among: NodeSet
    ) -> Placement | None:
        grants: list[Grant] = []
        needed = gpus
        for node, count in self._spill(capacity, gpu_type, gpus, Hosts(capacity, shape, among)):
            usable = capacity.usable(node, shape)
            grants.append(Grant(node, joined(capacity, node, usable, min(count, needed))))
            needed -= count
            if needed <= 0:
                return Placement(tuple(grants))
        return None


def _not_alone(found: Placement, shape: Shape) -> Placement | None:
    """Whole GPUs for a job that does not ask to be alone on them."""
    sharing = sharing_of(shape)
    return None if sharing is Sharing.MIG else found._replace(sharing=sharing)


def _liked_first(domains: tuple[NodeSet, ...], capacity: Capacity, shape: Shape) -> list[NodeSet]:
    """Label domains, those with preferred nodes first."""
    preferred = capacity.preferred(shape)
    return sorted(domains, key=lambda domain: [not domain & each for each in preferred])


# -- one node ----------------------------------------------------------------------------------------------------------


def favoured(nodes: NodeSet, preferred: Preferences) -> int:
    """The first node of a non-empty set, of those that meet most preferences in their order."""
    for each in preferred:
        nodes = nodes & each or nodes
    return first(nodes)


def _lowest_node(buckets: list[NodeSet], gpus: int, preferred: Preferences = ()) -> int:
    found = 0
    for nodes in buckets[gpus:]:
        found |= nodes
    if not found:
        return -1
    return favoured(found, preferred) if preferred else first(found)


def _fullest_node(buckets: list[NodeSet], gpus: int, preferred: Preferences = ()) -> int:
    for nodes in buckets[gpus:]:
        if nodes:
            return favoured(nodes, preferred) if preferred else first(nodes)
    return -1


def _emptiest_node(buckets: list[NodeSet], gpus: int, preferred: Preferences = ()) -> int:
    for nodes in reversed(buckets[gpus:]):
        if nodes:
            return favoured(nodes, preferred) if preferred else first(nodes)
    return -1


def _no_node(buckets: list[NodeSet], gpus: int, preferred: Preferences = ()) -> int:
    return -1 if gpus else _emptiest_node(buckets, gpus, preferred)


# -- several nodes -----------------------------------------------------------------------------------------------------


def _by_room(capacity: Capacity, gpu_type: int, hosts: Hosts) -> list[tuple[int, int]]:
    """Nodes with idle GPUs that they can feed, and how many, emptiest first."""
    nodes = capacity.at_least(gpu_type, 1) & hosts.with_room(1)
    rooms = [(node, hosts.limit(node)) for node in members(nodes)]
    liked = hosts.preferred
    return sorted(rooms, key=lambda each: (-each[1], *(not nodes >> each[0] & 1 for nodes in liked)))


def _whole_nodes(choose: NodeChoice) -> NodeOrder:
    """Empty nodes, then one more for the rest; nothing if that cannot be had."""

    def order(capacity: Capacity, gpu_type: int, gpus: int, hosts: Hosts) -> Iterator[tuple[int, int]]:
        buckets = hosts.buckets(gpu_type)
        size = hosts.node_size(gpu_type)
        if gpus <= size or size <= 0:
            return
        whole, rest = divmod(gpus, size)
        empty = buckets[size] & hosts.with_room(size)
        if empty.bit_count() < whole:
            return
        taken = 0
        for _ in range(whole):
            node = favoured(empty, hosts.preferred)
            yield node, size
            taken |= 1 << node
            empty ^= 1 << node
        if rest:
            usable = hosts.with_room(rest) & ~taken
            node = choose([nodes & usable for nodes in buckets], rest, hosts.preferred)
            if node >= 0:
                yield node, rest

    return order


def _fewest_nodes(capacity: Capacity, gpu_type: int, gpus: int, hosts: Hosts) -> Iterator[tuple[int, int]]:
    """The emptiest nodes first, and for the rest the node it fits best."""
    needed = gpus
    rooms = _by_room(capacity, gpu_type, hosts)
    for position, (node, room) in enumerate(rooms):
        if room < needed:
            yield node, room
            needed -= room
            continue
        enough = [each for each in rooms[position:] if each[1] >= needed]
        yield min(enough, key=lambda each: (each[1], each[0]))[0], needed
        return


def _one_each(capacity: Capacity, gpu_type: int, gpus: int, hosts: Hosts) -> Iterator[tuple[int, int]]:
    """Evenly over as many nodes as there are GPUs asked for, the emptiest nodes first."""
    nodes = _by_room(capacity, gpu_type, hosts)[:gpus]
    taken = [0] * len(nodes)
    left = gpus
    while left and any(taken[i] < room for i, (_, room) in enumerate(nodes)):
        for i, (_, room) in enumerate(nodes):
            if left and taken[i] < room:
                taken[i] += 1
                left -= 1
    for (node, _), count in zip(nodes, taken, strict=True):
        if count:
            yield node, count


# -- fractions of a GPU ------------------------------------------------------------------------------------------------

ShareChoice = Callable[[Capacity, Shape], Placement | None]


def open_devices(capacity: Capacity, shape: Shape) -> Array:
    """Where a fraction of a GPU goes beside others: a nodes × devices array of booleans."""
    fits: Array = (capacity.open_milli >= shape.milli) & (capacity.open_memory >= shape.gpu_bytes)
    fits &= capacity.open_sharing == sharing_of(shape)
    types = capacity.types_for(shape)
    usable = np.isin(capacity.nodes.gpu_type[: len(fits)], types) & np.asarray(capacity.up, dtype=bool)
    if shape.require or shape.avoid:
        usable &= as_mask(capacity.allowed(shape), len(fits))
    if shape.needs_host:
        usable &= (capacity.free_cpu_milli >= shape.cpu_milli) & (capacity.free_host_bytes >= shape.host_bytes)
    found: Array = fits & usable[:, None]
    return found


def as_mask(nodes: NodeSet, count: int) -> Array:
    """A set of nodes as a boolean array."""
    packed = (nodes & ((1 << count) - 1)).to_bytes((count + 7) // 8, "little")
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=count, bitorder="little").view(np.bool_)


def sharing_of(shape: Shape) -> Sharing:
    """How a fraction of a GPU is held: beside others where the job allows it, in time slices, alone, or on a slice."""
    return next(mode for mode in _PREFERRED if mode in shape.sharing)


_PREFERRED = (Sharing.SHARED, Sharing.TIME_SLICE, Sharing.EXCLUSIVE, Sharing.MIG)


def on_slice(capacity: Capacity, shape: Shape) -> Placement | None:
    """The smallest free MIG slice that holds a share of a GPU."""
    types, type_of = capacity.types_for(shape), capacity.nodes.type_of
    hosts = Hosts(capacity, shape).with_room(1)
    free = [
        (piece.milli, node, device, piece.start)
        for (node, device), pieces in capacity.free_slices.items()
        if type_of[node] in types and capacity.up[node] and hosts >> node & 1
        for piece in pieces
        if piece.milli >= shape.milli and piece.memory_bytes >= shape.gpu_bytes
    ]
    if not free:
        return None
    milli, node, device, start = min(free)
    return Placement((Grant(node, 1 << device, start),), Sharing.MIG, milli)


def idle_nodes(capacity: Capacity, shape: Shape) -> NodeSet:
    """The nodes with an idle device and room for a shape beside it."""
    nodes = 0
    for gpu_type in capacity.types_for(shape):
        nodes |= capacity.with_idle(gpu_type, 1, shape)
    return nodes & capacity.hosts(shape, shape.gpus) if nodes and shape.needs_host else nodes


def share(node: int, device: int, shape: Shape) -> Placement:
    """A fraction of one device."""
    return Placement((Grant(node, 1 << device),), sharing_of(shape), shape.milli)


def _best_share(capacity: Capacity, shape: Shape) -> Placement | None:
    """The open device with the least left over, else the first idle one."""
    if not capacity.open_milli.size:
        return None
    left = np.where(open_devices(capacity, shape), capacity.open_milli, WHOLE_GPU_MILLI + 1)
    best = int(left.argmin())
    node, device = divmod(best, left.shape[1])
    if left[node, device] <= WHOLE_GPU_MILLI:
        return share(node, device, shape)
    return _on_idle(capacity, shape)


def _worst_share(capacity: Capacity, shape: Shape) -> Placement | None:
    """An idle device, else the open one with the most left."""
    found = _on_idle(capacity, shape)
    if found is not None or not capacity.open_milli.size:
        return found
    left = np.where(open_devices(capacity, shape), capacity.open_milli, 0)
    node, device = divmod(int(left.argmax()), left.shape[1])
    return share(node, device, shape) if left[node, device] else None


def _first_share(capacity: Capacity, shape: Shape) -> Placement | None:
    """The first device that has room, open or idle."""
    idle = _on_idle(capacity, shape)
    fits = open_devices(capacity, shape)
    if not fits.any():
        return idle
    node, device = divmod(int(fits.argmax()), fits.shape[1])
    found = share(node, device, shape)
    return found if idle is None else min(idle, found, key=lambda each: each.grants[0])


def _on_idle(capacity: Capacity, shape: Shape) -> Placement | None:
    nodes = idle_nodes(capacity, shape)
    if not nodes:
        return None
    node = favoured(nodes, capacity.preferred(shape))
    return share(node, first(capacity.usable(node, shape)), shape)


# -- the list ----------------------------------------------------------------------------------------------------------

first_fit: Placer = WholeGpus(_lowest_node, _whole_nodes(_lowest_node), _first_share)
"""The first node with room. A gang larger than a node takes empty nodes and one more; it waits until it can."""
best_fit: Placer = WholeGpus(_fullest_node, _whole_nodes(_fullest_node), _best_share)
"""The node with the least room that is enough; larger gangs as in first fit."""
worst_fit: Placer = WholeGpus(_emptiest_node, _whole_nodes(_emptiest_node), _worst_share)
"""The node with the most room; larger gangs as in first fit."""
consolidated: Placer = WholeGpus(_fullest_node, _fewest_nodes, _best_share)
"""The fewest nodes that can be had now: a gang is split rather than kept waiting."""
spread: Placer = WholeGpus(_no_node, _one_each, _worst_share)
"""As many nodes as there are GPUs asked for, if there are."""
