"""Room for jobs with roles: whole gangs of workers, parameter servers and others, found by any placement.

Tasks with GPUs come first, where the placement wants them, with the CPUs and memory of each task; then the tasks
without, as near to them as there is room: on the same nodes, else on others by distance. All or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeSet
from gpuwise.core.commands import Grant, Placement, TaskGrant
from gpuwise.core.job.needs import ON_ONE_NODE, Role
from gpuwise.core.job.shape import Shape, counts_for, host_needs, task_needs, with_counts
from gpuwise.core.protocols import Placer
from gpuwise.policies.placing.host_tasks import HostTasks
from gpuwise.policies.placing.placement import worst_fit


def with_roles(placer: Placer) -> Placer:
    """A placement that places jobs with roles too; plain jobs go where they went before."""
    return placer if isinstance(placer, RolePlacer) else RolePlacer(placer)


class RolePlacer:
    """Places plain jobs as another placer does, and the tasks of jobs with roles with its help."""

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
        found = (self._anywhere(within(capacity, each), shape) for each in _domains(capacity, shape))
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
        if not shape.gpus:  # as for a plain job without GPUs, the nodes stand among the grants
            found = Placement(tuple(Grant(node, 0) for node in dict.fromkeys(task.node for task in tasks)))
        return found._replace(tasks=_in_order((*found.tasks, *tasks), shape))

    # -- tasks with GPUs -----------------------------------------------------------------------------------------

    def _with_gpus(self, capacity: Capacity, shape: Shape) -> Placement | None:
        """Room for the tasks with GPUs: as one gang if the GPUs it gets can be divided among them, else one by one."""
        roles = [role for role in shape.roles if role.gpus]
        found = self._placer(capacity, _as_one(replace(shape, within=""), roles), shape.gpus)
        tasks = None if found is None else _divided(found, roles)
        if found is not None and tasks is not None:
            return found._replace(tasks=tasks)
        if len(roles) == 1 and roles[0].gpus == 1:
            return None  # one by one would find no other room than the gang, but split it where the placement does not
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
    """Tasks that use up the GPUs of each node, the largest first; None if they do not come out even."""
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


# -- within one domain -------------------------------------------------------------------------------------------------


def _domains(capacity: Capacity, shape: Shape) -> Iterator[NodeSet]:
    """The nodes of each value of the label in which the job's nodes must agree; preferred ones first."""
    preferred, allowed = capacity.preferred(shape), capacity.allowed(shape)
    domains = [nodes for nodes in capacity.domains(shape.within) if nodes & allowed]
    yield from sorted(domains, key=lambda nodes: [not nodes & each for each in preferred])


def within(capacity: Capacity, nodes: NodeSet) -> Capacity:
    """The same capacity as if only some nodes were in service."""
    trial = capacity.fork()
    for node, up in enumerate(trial.up):
        if up and not nodes >> node & 1:
            trial.set_up(node, False)
    return trial
