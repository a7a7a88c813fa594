"""Which nodes a shape may run on: by GPU type, memory and labels."""

from __future__ import annotations

from gpuwise.core.cluster.host import HostRoom
from gpuwise.core.cluster.node_set import EVERY_NODE, NodeSet, members
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import ON_ONE_NODE
from gpuwise.core.job.table import Shape
from gpuwise.core.spec import Labels


class SuitedNodes(HostRoom):
    """The nodes that suit a shape; answers are kept per shape until nodes change, in a cache that copies share."""

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self._types_of: dict[int, tuple[int, ...]] = {}
        self._allowed: dict[int, NodeSet] = {}
        self._labelled: dict[str, dict[str, NodeSet]] = {}

    def _forget_suited(self) -> None:
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
                and nodes.type_memory_bytes[code] >= shape.gpu_memory_bytes
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

    def _sets(self, labels: Labels) -> tuple[NodeSet, ...]:
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
                return f"node {self.nodes.names[node]} has not the labels that it requires: {describe(shape.require)}"
        if shape.within and len(nodes := set(placement.nodes)) > 1:
            chosen = sum(1 << node for node in nodes)
            if shape.within == ON_ONE_NODE or not any(chosen & ~each == 0 for each in self.domains(shape.within)):
                names = ", ".join(self.nodes.names[node] for node in members(chosen))
                return f"nodes {names} are not in one {shape.within}"
        return ""


def describe(labels: Labels) -> str:
    """Labels in words: ``zone a or b, rack r1``."""
    return ", ".join(f"{key} {' or '.join(values)}" for key, values in labels)
