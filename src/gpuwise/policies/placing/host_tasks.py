"""Room for tasks without GPUs, such as parameter servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import TaskGrant
from gpuwise.core.job.needs import Role
from gpuwise.core.job.shape import Shape, task_needs
from gpuwise.core.units import less


class HostTasks:
    """CPUs and memory that are left on nodes for the tasks of one job, beside what others of its tasks ``use``."""

    def __init__(self, capacity: Capacity, shape: Shape, use: Mapping[int, tuple[int, int]]) -> None:
        self._capacity = capacity
        self._shape = shape
        self._used = dict(use)

    def place(self, roles: Sequence[Role], near: Sequence[int]) -> list[TaskGrant] | None:
        """Nodes for all tasks of some roles, as near to some nodes as can be; None if there is not enough room."""
        tasks: list[TaskGrant] = []
        near = list(near)
        for role in sorted(roles, key=lambda role: (-role.cpus, -role.memory_bytes)):
            missing = role.count
            for node in self._by_distance(role, near):
                count = min(missing, self.room(role, node))
                if count:
                    tasks.append(TaskGrant(role.name, node, count))
                    self._use(role, node, count)
                    missing -= count
                if not missing:
                    break
            if missing:
                return None
            near += [task.node for task in tasks if task.node not in near]
        return tasks

    def room(self, role: Role, node: int) -> int:
        """How many tasks of a role a node has room for; no more than the role has."""
        parts = zip(self._capacity.free_host(node), self._used.get(node, (0, 0)), task_needs(role), strict=True)
        limits = [less(free, used) // need for free, used, need in parts if need]
        return max(0, min([role.count, *limits]))

    def _use(self, role: Role, node: int, count: int) -> None:
        (milli, size), each = self._used.get(node, (0, 0)), task_needs(role)
        self._used[node] = (milli + count * each[0], size + count * each[1])

    def _by_distance(self, role: Role, near: Sequence[int]) -> Iterator[int]:
        """First the nodes ``near``, then the others that may be used, the nearest first; of equals, preferred ones."""
        yield from near
        capacity = self._capacity
        allowed, preferred = capacity.allowed(self._shape), capacity.preferred(self._shape)
        if not self._shape.gpus:  # as for a plain job, GPU types say which nodes it may be on
            types, type_of = capacity.types_for(self._shape), capacity.nodes.type_of
            allowed &= sum(1 << node for node, code in enumerate(type_of) if code in types)
        others = [
            node
            for node, up in enumerate(capacity.up)
            if up and allowed >> node & 1 and node not in near and self.room(role, node)
        ]
        liked = {node: [not nodes >> node & 1 for nodes in preferred] for node in others}
        distance = capacity.nodes.distance
        if near:
            far = {node: int(min(distance((node, 0), (each, 0)) for each in near)) for node in others}
        else:  # the first tasks go where most of their kind find room
            far = {node: -self.room(role, node) for node in others}
        yield from sorted(others, key=lambda node: (far[node], liked[node], node))
