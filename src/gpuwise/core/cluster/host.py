"""CPUs and memory of nodes that are left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gpuwise.core.cluster.nodes import NodeSet, NodeTable, node_set
from gpuwise.core.cluster.whole_gpus import WholeGpus, replaced
from gpuwise.core.commands import Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.shape import Shape, host_needs, wrong_tasks
from gpuwise.core.tables import Array, read_only
from gpuwise.core.units import UNLIMITED, cpu_milli, remaining, whole_bytes

Host = tuple[int, int]
"""Thousandths of CPUs and bytes of memory."""


class HostResources(WholeGpus):
    """Free CPUs and memory of every node.

    Where others use some of them, or a node shrank below what its jobs use, what the jobs leave is kept apart from
    what is free, so that it comes out right when they leave.
    """

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self.free_cpu_milli: Array = np.empty(0, dtype="i8")
        self.free_host_bytes: Array = np.empty(0, dtype="i8")
        self.claimed_host: Mapping[int, Host] = MappingProxyType({})
        """What others than jobs use, by node."""
        self._left_by_jobs: Mapping[int, Host] = {}
        """Of nodes with claims, or with too little for their jobs: what there is less what jobs use."""

    def hosts(self, shape: Shape, gpus: int) -> NodeSet:
        """The nodes with CPUs and memory for ``gpus`` of a shape's GPUs."""
        milli, size = shape.host_part(gpus)
        return node_set((self.free_cpu_milli >= milli) & (self.free_host_bytes >= size))

    @property
    def free_cpus(self) -> Array:
        """Free CPUs of every node, as people count them; infinite where they are not modelled."""
        return read_only(np.where(self.free_cpu_milli == UNLIMITED, np.inf, self.free_cpu_milli / 1000))

    @property
    def free_memory(self) -> Array:
        """Free memory of every node; infinite where it is not modelled."""
        return read_only(np.where(self.free_host_bytes == UNLIMITED, np.inf, self.free_host_bytes))

    def free_host(self, node: int) -> Host:
        """What may be allocated of a node's CPUs and memory."""
        return self.free_cpu_milli.item(node), self.free_host_bytes.item(node)

    def left(self, node: int) -> Host:
        """What jobs leave of a node, whatever others use; below 0 if they have more than there is."""
        return self._left_by_jobs.get(node) or self.free_host(node)

    def _reset_host(self, node: int) -> None:
        """A node of which nothing is in use."""
        count = max(len(self.nodes), node + 1)
        for name in ("free_cpu_milli", "free_host_bytes"):
            column = self._own(name)
            if len(column) < count:
                setattr(self, name, np.concatenate([column, np.zeros(count - len(column), dtype="i8")]))
        self.free_cpu_milli[node] = cpu_milli(self.nodes.cpus.item(node))
        self.free_host_bytes[node] = whole_bytes(self.nodes.memory_bytes.item(node))
        self._left_by_jobs = replaced(self._left_by_jobs, node)
        self.claimed_host = replaced(self.claimed_host, node)

    def _checked_host(self, placement: Placement, shape: Shape) -> dict[int, Host]:
        """What a job needs of each node; raises `OverAllocationError` where that is not free."""
        if shape.roles and (wrong := wrong_tasks(placement, shape)):
            raise OverAllocationError(wrong)
        needs = host_needs(placement, shape)
        for node, (milli, size) in needs.items():
            if shape.roles and not (0 <= node < len(self.nodes) and self.up[node]):
                raise OverAllocationError(f"{node} is not the row of a node in service, where tasks could be")
            if self.free_cpu_milli.item(node) < milli or self.free_host_bytes.item(node) < size:
                raise OverAllocationError(
                    f"node {self.nodes.names[node]}: {milli / 1000:g} CPUs and {size} bytes of memory are not left"
                )
        return needs

    def _use_host(self, needs: Mapping[int, Host], sign: int = 1) -> None:
        """Takes what a job needs of each node; frees it with a ``sign`` of -1."""
        for node, (milli, size) in needs.items():
            left = self.left(node)
            now = (remaining(left[0], sign * milli), remaining(left[1], sign * size))
            if self._left_by_jobs and node in self._left_by_jobs:
                self._set_left(node, now)
            else:
                self._own("free_cpu_milli")[node], self._own("free_host_bytes")[node] = now

    def _claim_host(self, node: int, claim: Host) -> None:
        """What others use of a node's CPUs and memory."""
        left = self.left(node)
        self.claimed_host = replaced(self.claimed_host, node, claim if any(claim) else None)
        self._set_left(node, left)

    def _keep_apart(self, placement: Placement) -> None:
        """From now on a placement may use more than there is."""
        self._left_by_jobs = {**{node: self.left(node) for node in placement.nodes}, **self._left_by_jobs}

    def _set_left(self, node: int, left: Host) -> None:
        apart = node in self.claimed_host or min(left) < 0
        self._left_by_jobs = replaced(self._left_by_jobs, node, left if apart else None)
        milli, size = self.claimed_host.get(node, (0, 0))
        self._own("free_cpu_milli")[node] = max(0, remaining(left[0], milli))
        self._own("free_host_bytes")[node] = max(0, remaining(left[1], size))
