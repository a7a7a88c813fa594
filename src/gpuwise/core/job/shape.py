"""What a job asks for: its shape, and the tasks of its roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from gpuwise.core.commands import Placement, TaskGrant
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.property import PropertyError
from gpuwise.core.job.schema import LabelValues
from gpuwise.core.units import UNLIMITED, WHOLE_GPU_MILLI, cpu_milli, format_bytes, whole_bytes

ParkedMemory = tuple[tuple[str, str, float], ...]
"""Node, device and bytes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job asks for; jobs that ask for the same have the same shape, so one look answers for all of them."""

    id: int
    gpus: int
    min_gpus: int
    max_gpus: int
    milli: int
    gpu_memory_bytes: float
    gpu_types: tuple[str, ...]
    sharing: frozenset[Sharing]
    cpus: float
    memory_bytes: float
    require: LabelValues = ()
    """Labels its nodes must have, each with the values that will do."""
    prefer: LabelValues = ()
    within: str = ""
    """A label in which all its nodes must agree, or ``node`` for a single one; empty is anywhere."""
    roles: tuple[Role, ...] = ()
    """Groups of tasks that start together; empty is a plain job."""
    avoid: tuple[str, ...] = ()
    """Nodes that refused to start it, and where it is not tried again soon."""
    parked: ParkedMemory = ()
    """Memory that its own parked processes keep: claimed against all others, and not against itself."""
    gpu_bytes: int = field(init=False)
    """``gpu_memory_bytes`` as it is compared with what is free: see `cpu_milli`."""
    cpu_milli: int = field(init=False)
    host_bytes: int = field(init=False)
    whole: bool = field(init=False)
    """Whether it asks for whole GPUs (or none)."""
    needs_host: bool = field(init=False)
    """Whether it asks for CPUs or memory of the node; a job with roles may, for its tasks."""
    alone: bool = field(init=False)
    """Whether it may have GPUs alone."""
    any_node: bool = field(init=False)
    """Whether one node is as good as another: no label is required or preferred, and none is to be avoided."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpu_bytes", whole_bytes(self.gpu_memory_bytes))
        object.__setattr__(self, "cpu_milli", cpu_milli(self.cpus))
        object.__setattr__(self, "host_bytes", whole_bytes(self.memory_bytes))
        object.__setattr__(self, "any_node", not (self.require or self.prefer or self.avoid))
        object.__setattr__(self, "whole", self.milli == WHOLE_GPU_MILLI)
        object.__setattr__(self, "needs_host", self.cpus > 0 or self.memory_bytes > 0 or bool(self.roles))
        object.__setattr__(self, "alone", Sharing.EXCLUSIVE in self.sharing)

    def host_part(self, gpus: int) -> tuple[int, int]:
        """Thousandths of CPUs and bytes of memory that belong to ``gpus`` of its GPUs; all where it has no GPUs."""
        if gpus == self.gpus or not self.gpus:
            return self.cpu_milli, self.host_bytes
        return self.cpu_milli * gpus // self.gpus, min(self.host_bytes * gpus // self.gpus, UNLIMITED)


PASSING = ("avoid", "parked")
"""What a job has of its shape for a while only; most have none of it."""
SHAPE_FIELDS = tuple(each.name for each in fields(Shape) if each.init and each.name not in ("id", *PASSING))
"""What jobs of one shape have declared in common, in the order of a shape's key."""


def task_counts(tasks: Iterable[TaskGrant]) -> dict[str, int]:
    """How many tasks there are of each role."""
    counts: dict[str, int] = {}
    for role, _, number in tasks:
        counts[role] = counts.get(role, 0) + number
    return counts


def task_needs(role: Role) -> tuple[int, int]:
    """Thousandths of CPUs and bytes of memory that one task of a role needs."""
    return cpu_milli(role.cpus), whole_bytes(role.memory_bytes)


def host_needs(placement: Placement, shape: Shape) -> dict[int, tuple[int, int]]:
    """Thousandths of CPUs and bytes of memory that a job needs of each of its nodes."""
    if not shape.roles:
        gpus: dict[int, int] = {}
        for node, devices, _ in placement.grants:
            gpus[node] = gpus.get(node, 0) + devices.bit_count()
        return {node: shape.host_part(count) for node, count in gpus.items()}
    each = {role.name: task_needs(role) for role in shape.roles}
    needs: dict[int, tuple[int, int]] = {}
    for name, node, count in placement.tasks:
        milli, size = needs.get(node, (0, 0))
        needs[node] = (milli + count * each[name][0], min(size + count * each[name][1], UNLIMITED))
    return needs


def total_host(shape: Shape) -> tuple[float, float]:
    """CPUs and memory of a whole job, with those of all its tasks."""
    if not shape.roles:
        return shape.cpus, shape.memory_bytes
    return (
        sum(role.count * role.cpus for role in shape.roles),
        sum(role.count * role.memory_bytes for role in shape.roles),
    )


def with_counts(shape: Shape, counts: Mapping[str, int]) -> Shape:
    """The same job with other numbers of tasks; those of roles that are not named stay.

    Raises `PropertyError` where a role may not have that number.
    """
    unknown = set(counts) - {role.name for role in shape.roles}
    if unknown:
        raise PropertyError("roles", min(unknown), f"one of {', '.join(role.name for role in shape.roles)}", "job")
    roles = tuple(replace(role, count=counts.get(role.name, role.count)) for role in shape.roles)
    # Capacities remember by a shape's number what it may run on; the number of tasks changes nothing about that.
    return replace(shape, roles=roles, gpus=sum(role.count * role.gpus for role in roles))


def counts_for(shape: Shape, gpus: int) -> dict[str, int] | None:
    """How many tasks of each role make ``gpus`` GPUs; None if no number, or more than one, does.

    Only a job with one elastic role that has GPUs leaves no choice; the others keep their counts.
    """
    counts = {role.name: role.count for role in shape.roles}
    if gpus == shape.gpus:
        return counts
    elastic = [role for role in shape.roles if role.gpus and len(set(role.count_range)) > 1]
    if len(elastic) != 1:
        return None
    role = elastic[0]
    more, rest = divmod(gpus - shape.gpus, role.gpus)
    low, high = role.count_range
    if rest or not low <= role.count + more <= high:
        return None
    return counts | {role.name: role.count + more}


def describe_roles(roles: Iterable[Role]) -> str:
    """Roles in words: ``2 × worker (1 GPU, 4 CPUs) and 1 × ps (8 CPUs, 16 GiB)``."""
    parts = []
    for role in roles:
        needs = [f"{role.gpus} GPU{'' if role.gpus == 1 else 's'}"] if role.gpus else []
        needs += [f"{role.cpus:g} CPUs"] if role.cpus else []
        needs += [format_bytes(role.memory_bytes)] if role.memory_bytes else []
        parts.append(f"{role.count} × {role.name}" + (f" ({', '.join(needs)})" if needs else ""))
    return " and ".join(parts)


def wrong_tasks(placement: Placement, shape: Shape) -> str:
    """What is wrong with the tasks of a placement for a job that asks for a shape; empty if nothing is."""
    roles = {role.name: role for role in shape.roles}
    gpus: dict[int, int] = {}
    for name, node, count in placement.tasks:
        if name not in roles or count < 1:
            return f"{count} tasks of {name!r}, which are not tasks of a role that the job has"
        gpus[node] = gpus.get(node, 0) + count * roles[name].gpus
    counts = task_counts(placement.tasks)
    for role in shape.roles:
        low, high = role.count_range
        if not low <= counts.get(role.name, 0) <= high:
            return f"{counts.get(role.name, 0)} tasks of role {role.name!r}, which has {low} to {high}"
    for node, devices, _ in placement.grants:
        gpus[node] = gpus.get(node, 0) - devices.bit_count()
    for node, missing in gpus.items():
        if missing:
            return f"the tasks on node {node} need {abs(missing)} GPUs {'more' if missing > 0 else 'fewer'} than given"
    return ""
