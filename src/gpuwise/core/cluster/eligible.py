"""Which nodes a shape may run on, by GPU type, memory and labels; and what is wrong with a placement for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwise.core.cluster.nodes import EVERY_NODE, NodeSet, NodeTable, members
from gpuwise.core.cluster.shared_gpus import SharedGpus
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import EXCLUSIVE, ON_ONE_NODE, Sharing
from gpuwise.core.job.schema import LabelValues
from gpuwise.core.job.shape import Shape, wrong_tasks
from gpuwise.core.units import WHOLE_GPU_MILLI

if TYPE_CHECKING:
    from gpuwise.core.cluster.capacity import Capacity


class EligibleNodes(SharedGpus):
    """The nodes on which a shape may run: kept per shape until nodes change, in a cache that copies share."""

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self._types_of: dict[int, tuple[int, ...]] = {}
        self._allowed: dict[int, NodeSet] = {}
        self._labelled: dict[str, dict[str, NodeSet]] = {}

    def _clear_eligible(self) -> None:
        self._types_of.clear()
        self._allowed.clear()
        self._labelled.clear()

    def types_for(self, shape: Shape) -> tuple[int, ...]:
        """The GPU types a shape may run on: those it names that are here, with enough memory on the device."""
        known = self._types_of.get(shape.id)
        if known is None:
            nodes = self.nodes
            known = self._types_of[shape.id] = tuple(
                code
                for code, name in enumerate(nodes.types)
                if (not shape.gpu_types or name in shape.gpu_types)
                and nodes.type_gpu_bytes[code] >= shape.gpu_bytes
                and nodes.type_nodes[code]
            )
        return known

    def allowed(self, shape: Shape) -> NodeSet:
        """The nodes that a shape may run on now: with the labels it requires, but for those it is to avoid."""
        return self._but_avoided(shape) if shape.avoid else self.required(shape)

    def _but_avoided(self, shape: Shape) -> NodeSet:
        """The nodes that a shape need not avoid; all that it could run on if there is no other."""
        types, required = self.types_for(shape), self.required(shape)
        others = sum(
            self._bits[row]
            for row, spec in self.nodes.present()
            if self.up[row] and self.nodes.type_of[row] in types and spec.name not in shape.avoid
        )
        return required & others or required

    def required(self, shape: Shape) -> NodeSet:
        """The nodes with the labels that a shape requires; every node for one that requires none."""
        if not shape.require:
            return EVERY_NODE
        known = self._allowed.get(shape.id)
        if known is None:
            known = EVERY_NODE
            for each in self._sets(shape.require):
                known &= each
            self._allowed[shape.id] = known
        return known

    def preferred(self, shape: Shape) -> tuple[NodeSet, ...]:
        """For each preference of a shape, the nodes that meet it."""
        return self._sets(shape.prefer) if shape.prefer else ()

    def domains(self, key: str) -> tuple[NodeSet, ...]:
        """The nodes of each value of a label, by value."""
        labelled = self._by_value(key)
        return tuple(labelled[value] for value in sorted(labelled))

    def _sets(self, labels: LabelValues) -> tuple[NodeSet, ...]:
        found = []
        for key, values in labels:
            labelled, nodes = self._by_value(key), 0
            for value in values:
                nodes |= labelled.get(value, 0)
            found.append(nodes)
        return tuple(found)

    def _by_value(self, key: str) -> dict[str, NodeSet]:
        known = self._labelled.get(key)
        if known is None:
            known = self._labelled[key] = {}
            for row, spec in self.nodes.present():
                for each, value in spec.labels:
                    if each == key:
                        known[value] = known.get(value, 0) | 1 << row
        return known

    def buckets(self, gpu_type: int, shape: Shape, among: NodeSet = EVERY_NODE) -> list[NodeSet]:
        """The nodes of a GPU type that suit a shape, by how many idle devices they have for it."""
        buckets = self.by_idle[gpu_type]
        among &= self.allowed(shape)
        if among != EVERY_NODE:
            buckets = [nodes & among for nodes in buckets]
        if self.claimed_memory and shape.gpu_memory_bytes:
            buckets = self._less_claimed(buckets, shape)
        return buckets

    def _less_claimed(self, buckets: list[NodeSet], shape: Shape) -> list[NodeSet]:
        """Counts only the devices on which others leave enough memory."""
        moved = list(buckets)
        for node in {node for node, _ in self.claimed_memory}:
            bit, count = self._bits[node], self.idle[node].bit_count()
            enough = self.usable(node, shape).bit_count()
            if enough < count < len(buckets) and buckets[count] & bit:
                moved[count] ^= bit
                moved[enough] |= bit
        return moved

    def with_idle(self, gpu_type: int, count: int, shape: Shape) -> NodeSet:
        """The nodes of a GPU type that suit a shape and have ``count`` or more idle devices for it."""
        found = 0
        for nodes in self.buckets(gpu_type, shape)[count:]:
            found |= nodes
        return found

    def misfit(self, placement: Placement, shape: Shape) -> str:
        """What a shape requires of nodes that a placement does not meet; empty if it meets all."""
        allowed = self.required(shape)
        for node in placement.nodes:
            if not allowed >> node & 1:
                missing = describe_labels(shape.require)
                return f"node {self.nodes.names[node]} has not the labels that it requires: {missing}"
        if shape.within and len(nodes := set(placement.nodes)) > 1:
            chosen = sum(1 << node for node in nodes)
            if shape.within == ON_ONE_NODE or not any(chosen & ~each == 0 for each in self.domains(shape.within)):
                names = ", ".join(self.nodes.names[node] for node in members(chosen))
                return f"nodes {names} are not in one {shape.within}"
        return ""


def describe_labels(labels: LabelValues) -> str:
    """Labels in words: ``zone a or b, rack r1``."""
    return ", ".join(f"{key} {' or '.join(values)}" for key, values in labels)


def wrong_placement(placement: Placement, shape: Shape, capacity: Capacity) -> str:
    """What a job of a shape may not have of a placement; empty if it may have it, if it is free."""
    grants, sharing, milli, _, tasks = placement  # unpacked at once: this is checked for every start of a simulation
    types, type_of = capacity.types_for(shape), capacity.nodes.type_of
    gpus = 0
    for node, devices, _ in grants:
        if not 0 <= node < len(type_of):
            return f"there is no node {node}"
        if type_of[node] not in types:
            return f"it may not run on GPU type {capacity.nodes.types[type_of[node]]}"
        gpus += devices.bit_count()
    if (shape.roles or tasks) and (wrong := _wrong_roles(placement, shape, len(type_of))):
        return wrong
    if (shape.require or shape.within) and (wrong := capacity.misfit(placement, shape)):
        return wrong
    if not shape.min_gpus <= gpus <= shape.max_gpus:
        return f"it may run on {shape.min_gpus} to {shape.max_gpus} GPUs, not {gpus}"
    if sharing is EXCLUSIVE:
        if not shape.alone:
            return f"it does not allow {sharing.name}"
        return "" if milli == WHOLE_GPU_MILLI else f"{milli}/1000 of a GPU cannot be allocated as a whole GPU"
    if sharing not in shape.sharing:
        return f"it does not allow {sharing.name}"
    if not 1 <= milli <= WHOLE_GPU_MILLI:
        return f"a share of {milli}/1000 of a GPU is none"
    return _wrong_slices(placement, capacity) if sharing is Sharing.MIG else ""


def _wrong_roles(placement: Placement, shape: Shape, nodes: int) -> str:
    """A job with roles has a number of tasks of each that it may have, with the GPUs they need where they are."""
    unknown = [task.node for task in placement.tasks if not 0 <= task.node < nodes]
    return f"there is no node {unknown[0]}" if unknown else wrong_tasks(placement, shape)


def _wrong_slices(placement: Placement, capacity: Capacity) -> str:
    """A placement on slices says how large they are; whether they are free is for the capacity to say."""
    for node, devices, start in placement.grants:
        piece = capacity.slice_at(node, devices.bit_length() - 1, start)
        if devices.bit_count() != 1 or (piece is not None and piece.milli != placement.milli):
            return f"{placement.milli}/1000 of a GPU is not a slice at {start} of one device"
    return ""
