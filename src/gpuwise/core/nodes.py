"""The node table: what every node has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.spec import ClusterSpec, NodeSpec
from gpuwise.core.tables import Array, Table


class NodeTable(Table):
    """One row a node. GPU types are numbered; a type has one memory size and one speed."""

    COLUMNS: ClassVar[Mapping[str, tuple[str, float]]] = {
        "gpus": ("i4", 0),
        "cpus": ("f8", math.inf),
        "memory_bytes": ("f8", math.inf),
        "usd_per_hour": ("f8", math.nan),
        "gpu_type": ("i4", 0),
    }

    gpus: Array
    cpus: Array
    memory_bytes: Array
    usd_per_hour: Array
    gpu_type: Array

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.specs: list[NodeSpec] = []
        self.type_of: list[int] = []
        self.types: list[str] = []
        self.type_memory_bytes: list[float] = []
        self.type_speed: list[float] = []

    def add(self, spec: NodeSpec) -> int:
        """Adds a node and returns its row."""
        code = self._type_code(spec)
        self.names.append(spec.name)
        self.specs.append(spec)
        self.type_of.append(code)
        return self.append(
            {
                "gpus": spec.gpus,
                "cpus": spec.cpus,
                "memory_bytes": spec.memory_bytes,
                "usd_per_hour": spec.usd_per_hour,
                "gpu_type": code,
            }
        )

    def memory_of(self, node: int) -> float:
        """Memory of each of a node's GPUs."""
        return self.type_memory_bytes[self.type_of[node]]

    def _type_code(self, spec: NodeSpec) -> int:
        if spec.gpu_type not in self.types:
            self.types.append(spec.gpu_type)
            self.type_memory_bytes.append(spec.gpu_memory_bytes)
            self.type_speed.append(spec.speed)
        code = self.types.index(spec.gpu_type)
        if (spec.gpu_memory_bytes, spec.speed) != (self.type_memory_bytes[code], self.type_speed[code]):
            raise GpuwiseError(
                f"node {spec.name!r}: GPU type {spec.gpu_type!r} already has another memory size or speed; "
                "give the second kind a name of its own"
            )
        return code


def node_table(cluster: ClusterSpec) -> NodeTable:
    """The nodes of a cluster as a table."""
    nodes = NodeTable()
    for node in cluster.nodes:
        nodes.add(node)
    return nodes
