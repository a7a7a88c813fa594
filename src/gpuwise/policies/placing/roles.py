"""Room for jobs with roles: whole gangs of workers, parameter servers and others, found by any placement.

Tasks with GPUs are placed first, where the placement puts them, with the CPUs and memory of each task; then the tasks
without, as near to them as possible: on the same nodes, else on others by distance. All or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeSet
from gpuwise.core.commands import Grant, Placement, TaskGrant
from gpuwise.core.job.needs import ON_ONE_NODE, Role
from gpuwise.core.job.shape import Shape, counts_for, host_needs, task_needs, with_counts
from gpuwise.core.protocols import Placer
from gpuwise.core.units import remaining
from gpuwise.policies.placing.eligible import domains
from gpuwise.policies.placing.placement import worst_fit


def with_roles(placer: Placer) -> Placer:
    """A placement that also places jobs with roles; plain jobs are placed as before."""
    return placer if isinstance(placer, RolePlacer) else RolePlacer(placer)


class RolePlacer:
    """Places plain jobs with another placer, and the tasks of jobs with roles with its help."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self.only_reads = getattr(placer, "only_reads", False)

    def __call__(self, capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
        """Room for ``gpus`` GPUs of a shape, with all other tasks of its job, or none."""
        if not shape.roles:
            return self._placer(capacity, shape, gpus)
        counts = counts_for(shape, gpus)
        return None if counts is None else self._gang(capacity, with_counts(shape, counts))

    def _gang(self, capacity: Capacity, shape: Shape) -> Placement | None:
        if shape.within == ON_ONE_NODE:
            return self._on_one_node(capacity, shape)
        if not shape.within:
            return self._anywhere(capacity, shape)
        found = (self._anywhere(within(capacity, each), shape) for each in domains(capacity, shape))
        return next((placement for placement in found if placement is not None), None)

    def _on_one_node(self, capacity: Capacity, shape: Shape) -> Placement | None:
        """All tasks together, as if they were one."""
        found = self._placer(capacity, _as_one(shape, shape.roles), shape.gpus)
        if found is None:
            return None
        node = found.grants[0].node
        return found._replace(tasks=tuple(TaskGrant(role.name, node, role.count) for role in shape.roles))

    def _anywhere(self, capacity: Capacity, shape: Shape) -> Placement | None:
        found = self._with_gpus(capacity, shape) if shape.gpus else Placement(())
        if found is None:
            return None
        rest = HostTasks(capacity, shape, host_needs(found, shape))
        near = list(dict.fromkeys(task.node for task in found.tasks))
        tasks = rest.place([role for role in shape.roles if not role.gpus], near)
        if tasks is None:
            return None
        if not shape.gpus:  # as for a plain job without GPUs, the nodes are among the grants
            found = Placement(tuple(Grant(node, 0) for node in dict.fromkeys(task.node for task in tasks)))
        return found._replace(tasks=_in_order((*found.tasks, *tasks), shape))

    # -- tasks with GPUs -----------------------------------------------------------------------------------------

    def _with_gpus(self, capacity: Capacity, shape: Shape) -> Placement | None:
        """Room for the tasks with GPUs: as one gang if its GPUs can be divided among them, else one by one."""
        roles = [role for role in shape.roles if role.gpus]
        found = self._placer(capacity, _as_one(replace(shape, within=""), roles), shape.gpus)
        tasks = None if found is None else _divided(found, roles)
        if found is not None and tasks is not None:
            return found._replace(tasks=tasks)
        if len(roles) == 1 and roles[0].gpus == 1:
            return None  # one by one would only split the gang where the placement does not
        tried = (self._one_by_one(trial, shape, roles) for trial in _by_type(capacity, shape))
        return next((placement for placement in tried if placement is not None), None)

    def _one_by_one(self, trial: Capacity, shape: Shape, roles: Sequence[Role]) -> Placement | None:
        masks: dict[int, int] = {}
        tasks: dict[tuple[str, int], int] = {}
        how = Placement(())
        for role in sorted(roles, key=lambda role: -role.gpus):
            one = replace(_as_one(shape, [replace(role, count=1, min_count=1, max_count=1)]), within=ON_ONE_NODE)
            for _ in range(role.count):
                # A placement that spreads GPUs over nodes has none for a task that needs several on one.
                found = self._placer(trial, one, role.gpus) or worst_fit(trial, one, role.gpus)
                if found is None:
                    return None
                trial.take(found, one)
                how, (node, devices, _) = found, found.grants[0]
                masks[node] = masks.get(node, 0) | devices
                tasks[role.name, node] = tasks.get((role.name, node), 0) + 1
        grants = tuple(Grant(node, mask) for node, mask in masks.items())
        made = tuple(TaskGrant(*where, number) for where, number in tasks.items())
        return how._replace(grants=grants, tasks=made)


def _by_type(capacity: Capacity, shape: Shape) -> Iterator[Capacity]:
    """What is free of each GPU type that a job may have: all its tasks have GPUs of one type, as any gang."""
    type_of, codes = capacity.nodes.type_of, capacity.types_for(shape)
    for code in codes:
        nodes = sum(1 << node for node, each in enumerate(type_of) if each == code)
        yield within(capacity, nodes) if len(codes) > 1 else capacity.fork()


def within(capacity: Capacity, nodes: NodeSet) -> Capacity:
    """The same capacity as if only some nodes were in service."""
    trial = capacity.fork()
    for node, up in enumerate(trial.up):
        if up and not nodes >> node & 1:
            trial.set_up(node, False)
    return trial


def _as_one(shape: Shape, roles: Iterable[Role]) -> Shape:
    """A plain job that needs what tasks of some roles need together; over several nodes, as if all were the largest."""
    roles = list(roles)
    gpus = sum(role.count * role.gpus for role in roles)
    on_one_node = not gpus or shape.within == ON_ONE_NODE

    def together(needs: Sequence[int]) -> int:
        if on_one_node:
            return sum(need * role.count for need, role in zip(needs, roles, strict=True))
        return max(-(-gpus * need // role.gpus) for need, role in zip(needs, roles, strict=True))  # rounded up

    milli, size = (together(needs) for needs in zip(*map(task_needs, roles), strict=True))
    return replace(shape, roles=(), gpus=gpus, min_gpus=gpus, max_gpus=gpus, cpus=milli / 1000, memory_bytes=size)


def _divided(found: Placement, roles: Sequence[Role]) -> tuple[TaskGrant, ...] | None:
    """Tasks that use up the GPUs of each node, the largest first; None if GPUs are left over."""
    left: dict[int, int] = {}
    for node, devices, _ in found.grants:
        left[node] = left.get(node, 0) + devices.bit_count()
    tasks: list[TaskGrant] = []
    for role in sorted(roles, key=lambda role: -role.gpus):
        missing = role.count
        for node in left:
            if count := min(missing, left[node] // role.gpus):
                tasks.append(TaskGrant(role.name, node, count))
                left[node] -= count * role.gpus
                missing -= count
        if missing:
            return None
    return tuple(tasks)


def _in_order(tasks: Sequence[TaskGrant], shape: Shape) -> tuple[TaskGrant, ...]:
    """Tasks by role, in the order in which the roles were declared."""
    return tuple(task for role in shape.roles for task in tasks if task.role == role.name)


# -- tasks without GPUs -----------------------------------------------------------------------------------------------


class HostTasks:
    """Places the tasks without GPUs of one job, such as parameter servers, beside what its other tasks ``use``."""

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
        """How many tasks of a role fit on a node; no more than the role has."""
        parts = zip(self._capacity.free_host(node), self._used.get(node, (0, 0)), task_needs(role), strict=True)
        limits = [remaining(free, used) // need for free, used, need in parts if need]
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
        rank = {node: [not nodes >> node & 1 for nodes in preferred] for node in others}
        distance = capacity.nodes.distance
        if near:
            far = {node: int(min(distance((node, 0), (each, 0)) for each in near)) for node in others}
        else:  # the first tasks go where most of their role fit
            far = {node: -self.room(role, node) for node in others}
        yield from sorted(others, key=lambda node: (far[node], rank[node], node))
