"""CPUs and memory of nodes that are left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gpuwise.core.cluster.nodes import NodeSet, NodeTable, node_set
from gpuwise.core.cluster.whole_gpus import WholeGpus
from gpuwise.core.commands import Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.shape import Shape, host_needs, wrong_tasks
from gpuwise.core.tables import Array


class HostResources(WholeGpus):
    """Free CPUs and memory of every node.

    Where others use some of them, or a node shrank below what its jobs use, what the jobs leave is kept apart from
    what is free, so that giving back comes out right.
    """

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self.free_cpus: Array = np.empty(0)
        self.free_memory: Array = np.empty(0)
        self.claimed_host: Mapping[int, tuple[float, float]] = MappingProxyType({})
        """CPUs and memory that others use, by node; replaced whole."""
        self._left_by_jobs: dict[int, tuple[float, float]] = {}
        """Of nodes with claims, or with too little for their jobs: CPUs and memory less what jobs use."""

    def hosts(self, shape: Shape, gpus: int) -> NodeSet:
        """The nodes with CPUs and memory for ``gpus`` of a shape's GPUs."""
        part = gpus / shape.gpus if shape.gpus else 1.0
        enough = (self.free_cpus >= shape.cpus * part - 1e-9) & (self.free_memory >= shape.memory_bytes * part - 1e-3)
        return node_set(enough)

    def _reset_host(self, node: int) -> None:
        """A node of which nobody uses anything."""
        count = max(len(self.nodes), node + 1)
        for name in ("free_cpus", "free_memory"):
            column = self._own(name)
            if len(column) < count:
                setattr(self, name, np.concatenate([column, np.zeros(count - len(column))]))
        self.free_cpus[node], self.free_memory[node] = self.nodes.cpus[node], self.nodes.memory_bytes[node]
        self._left_by_jobs = {each: left for each, left in self._left_by_jobs.items() if each != node}
        others = {each: claim for each, claim in self.claimed_host.items() if each != node}
        self.claimed_host = MappingProxyType(others)

    def _check_host(self, placement: Placement, shape: Shape) -> None:
        if shape.roles:
            self._check_tasks(placement, shape)
            return
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

    def _check_tasks(self, placement: Placement, shape: Shape) -> None:
        """The same for a job with roles, whose tasks each have needs of their own."""
        if wrong := wrong_tasks(placement, shape):
            raise OverAllocationError(wrong)
        for node, (cpus, memory_bytes) in host_needs(placement.tasks, shape).items():
            if not (0 <= node < len(self.nodes) and self.up[node]):
                raise OverAllocationError(f"{node} is not the row of a node in service, where tasks could be")
            if self.free_cpus[node] < cpus - 1e-6 or self.free_memory[node] < memory_bytes - 1.0:
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: {cpus:g} CPUs and {memory_bytes:g} bytes of memory are not left "
                    "for the tasks there"
                )

    def _move_host(self, placement: Placement, shape: Shape, sign: float) -> None:
        if shape.roles:
            for node, (cpus, memory_bytes) in host_needs(placement.tasks, shape).items():
                self._change_host(node, sign * cpus, sign * memory_bytes)
            return
        for node, devices, _ in placement.grants:
            part = sign * (devices.bit_count() / shape.gpus if shape.gpus else 1.0)
            self._change_host(node, shape.cpus * part, shape.memory_bytes * part)

    def _change_host(self, node: int, cpus: float, memory_bytes: float) -> None:
        if self._left_by_jobs and node in self._left_by_jobs:
            left = self._left_by_jobs[node]
            self._set_left(node, left[0] + cpus, left[1] + memory_bytes)
            return
        free_cpus, free_memory = self._own("free_cpus"), self._own("free_memory")
        free_cpus[node] = _snapped(free_cpus[node] + cpus, self.nodes.cpus[node])
        free_memory[node] = _snapped(free_memory[node] + memory_bytes, self.nodes.memory_bytes[node])

    def _claim_host(self, node: int, cpus: float, memory_bytes: float) -> None:
        """What others use of a node's CPUs and memory."""
        left = self._left_by_jobs.get(node, (float(self.free_cpus[node]), float(self.free_memory[node])))
        others = {each: claim for each, claim in self.claimed_host.items() if each != node}
        claimed = {node: (cpus, memory_bytes)} if cpus or memory_bytes else {}
        self.claimed_host = MappingProxyType(others | claimed)
        self._set_left(node, *left)

    def left(self, node: int) -> tuple[float, float]:
        """CPUs and memory that jobs leave of a node, whatever others use; below 0 if they have more than there is."""
        return self._left_by_jobs.get(node) or (float(self.free_cpus[node]), float(self.free_memory[node]))

    def _keep_apart(self, placement: Placement) -> None:
        """From now on a placement may use more than there is."""
        new = {
            node: (float(self.free_cpus[node]), float(self.free_memory[node]))
            for node in placement.nodes
            if node not in self._left_by_jobs
        }
        self._left_by_jobs = {**self._left_by_jobs, **new}

    def _set_left(self, node: int, cpus: float, memory_bytes: float) -> None:
        nodes, claim = self.nodes, self.claimed_host.get(node, (0.0, 0.0))
        left = (_snapped(cpus, nodes.cpus[node]), _snapped(memory_bytes, nodes.memory_bytes[node]))
        others = {each: known for each, known in self._left_by_jobs.items() if each != node}
        apart = node in self.claimed_host or min(left) < 0
        self._left_by_jobs = {**others, node: left} if apart else others
        self._own("free_cpus")[node] = max(0.0, left[0] - claim[0])
        self._own("free_memory")[node] = max(0.0, left[1] - claim[1])


def _snapped(free: float, total: float) -> float:
    """What is free, with what rounding has added up to taken off when all is."""
    return float(total if free > total * (1 - 1e-9) else free)
