"""Placements that policies share: room for a gang on whole GPUs, or for a part of one.

Whole GPUs are found by the node index: for each GPU type a shape may run on, in the order of the cluster, the first
with room for the gang. Parts of a GPU go to devices that are open to sharing, or open an idle one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import EVERY_NODE, NodeSet, first, members
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import ON_ONE_NODE, Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer
from gpuwise.policies.placing.eligible import (
    Hosts,
    Preferences,
    domains,
    favoured,
    linked,
    lowest,
    on_one_node,
    pick_devices,
)
from gpuwise.policies.placing.fractions import best_share, first_share, on_slice, sharing_of, worst_share

NodeChoice = Callable[[list[NodeSet], int, Preferences], int]
"""From nodes by number of idle GPUs, and the GPUs asked for: the node; of equals a preferred one; -1 for none."""
NodeOrder = Callable[[Capacity, int, int, Hosts], Iterator[tuple[int, int]]]
"""Nodes in the order of a placement, each with the number of GPUs to take there."""
ShareChoice = Callable[[Capacity, Shape], Placement | None]
"""A part of a GPU for a shape, or none."""


class WholeGpus:
    """Finds whole GPUs: on one node if the gang fits on one, else over several in a placement's own order."""

    only_reads = True
    """Tests check that it does not change the capacity, so it gets the cluster's own and not a guarded one."""

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
            if node < 0 and shape.within == ON_ONE_NODE:  # also under a placement that prefers several
                node = _emptiest_node(buckets, gpus, preferred)
            if node >= 0:
                usable = capacity.idle[node] if plain else capacity.usable(node, shape)
                links = capacity.nodes.specs[node].links
                return on_one_node(node, linked(usable, gpus, links) if links else lowest(usable, gpus))
        if not shape.within:
            return self._over_nodes(capacity, shape, gpus, gpu_type, EVERY_NODE)
        among = () if shape.within == ON_ONE_NODE else domains(capacity, shape)
        found = (self._over_nodes(capacity, shape, gpus, gpu_type, domain) for domain in among)
        return next((placement for placement in found if placement is not None), None)

    def _over_nodes(
        self, capacity: Capacity, shape: Shape, gpus: int, gpu_type: int, among: NodeSet
    ) -> Placement | None:
        grants: list[Grant] = []
        needed = gpus
        for node, count in self._spill(capacity, gpu_type, gpus, Hosts(capacity, shape, among)):
            usable = capacity.usable(node, shape)
            grants.append(Grant(node, pick_devices(capacity, node, usable, min(count, needed))))
            needed -= count
            if needed <= 0:
                return Placement(tuple(grants))
        return None


def _not_alone(found: Placement, shape: Shape) -> Placement | None:
    """Whole GPUs for a job that does not ask to be alone on them."""
    sharing = sharing_of(shape)
    return None if sharing is Sharing.MIG else found._replace(sharing=sharing)


# -- one node ----------------------------------------------------------------------------------------------------------


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
    """Nodes with idle GPUs that their CPUs and memory can feed, and how many, emptiest first."""
    nodes = capacity.at_least(gpu_type, 1) & hosts.with_room(1)
    rooms = [(node, hosts.limit(node)) for node in members(nodes)]
    preferred = hosts.preferred
    return sorted(rooms, key=lambda each: (-each[1], *(not nodes >> each[0] & 1 for nodes in preferred)))


def _whole_nodes(choose: NodeChoice) -> NodeOrder:
    """Empty nodes, then one more for the rest; nothing if there are too few."""

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


def _evenly(capacity: Capacity, gpu_type: int, gpus: int, hosts: Hosts) -> Iterator[tuple[int, int]]:
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


# -- the list ----------------------------------------------------------------------------------------------------------

first_fit: Placer = WholeGpus(_lowest_node, _whole_nodes(_lowest_node), first_share)
"""The first node with room. A gang larger than a node takes empty nodes and one more, and waits for these."""
best_fit: Placer = WholeGpus(_fullest_node, _whole_nodes(_fullest_node), best_share)
"""The node with the least room that is enough; larger gangs as in first fit."""
worst_fit: Placer = WholeGpus(_emptiest_node, _whole_nodes(_emptiest_node), worst_share)
"""The node with the most room; larger gangs as in first fit."""
consolidated: Placer = WholeGpus(_fullest_node, _fewest_nodes, best_share)
"""The fewest nodes possible now: a gang is split rather than kept waiting."""
spread: Placer = WholeGpus(_no_node, _evenly, worst_share)
"""As many nodes as GPUs are asked for, if there are enough."""
