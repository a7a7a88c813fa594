"""Why a job does not fit, with the numbers."""

from __future__ import annotations

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.eligible import describe_labels
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Reason, Why
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.shape import Shape, task_needs
from gpuwise.core.units import WHOLE_GPU_MILLI, format_bytes

__all__ = ["Reason", "Why", "explain_room", "from_now"]


def from_now(reason: Reason, now_s: float) -> Reason:
    """A reason for people who do not know the engine's clock: times are counted from now."""
    numbers = dict(reason.numbers)
    if "at_s" in numbers:
        numbers["in_s"] = float(numbers.pop("at_s")) - now_s
    return Reason(reason.code, numbers)


def explain_room(state: ClusterState, job: int) -> Reason:
    """Why the capacity as it is now does not hold a job."""
    shape = state.jobs.shape_of(job)
    capacity = state.capacity
    types, allowed = capacity.types_for(shape), capacity.required(shape)
    if shape.require and not allowed:
        labels: dict[str, float | str] = {
            "labels": describe_labels(shape.require),
            "nodes": len(list(state.nodes.present())),
        }
        return Reason(Why.NO_SUCH_NODE, {"gpus": shape.gpus, "where": _where(shape), "total": 0, "idle": 0, **labels})
    usable = [row for row, _ in state.nodes.present() if state.nodes.type_of[row] in types and allowed >> row & 1]
    gpus = {row: state.nodes.gpus.item(row) - capacity.lost.get(row, 0).bit_count() for row in usable}
    total = sum(gpus.values())
    asked: dict[str, float | str] = {"gpus": shape.gpus, "where": _where(shape), "total": total}
    if drained := sum(number for row, number in gpus.items() if not state.nodes.specs[row].schedulable):
        asked["drained"] = drained
    if shape.min_gpus > total:
        return Reason(Why.NEVER_FITS, asked)
    by_idle = [capacity.buckets(code, shape) for code in types]
    idle = sum(count * nodes.bit_count() for buckets in by_idle for count, nodes in enumerate(buckets))
    host: dict[str, float | str] = {"cpus": shape.cpus, "memory": format_bytes(shape.memory_bytes)}
    if not shape.whole and shape.gpus and not (shape.roles and idle):
        open_to_it = bool((capacity.open_milli >= shape.milli).any())
        if shape.needs_host and (idle or open_to_it):
            return Reason(Why.NO_HOST_ROOM, {**asked, **host})
        return Reason(Why.NO_SHARE, {"percent": 100 * shape.milli / WHOLE_GPU_MILLI, **asked})
    largest = max((count for buckets in by_idle for count, nodes in enumerate(buckets) if nodes), default=0)
    if shape.roles and idle >= shape.gpus:
        return _explain_tasks(state, shape)
    if idle >= shape.gpus and largest >= min(shape.gpus, 1) and shape.needs_host:
        return Reason(Why.NO_HOST_ROOM, {**asked, **host})
    if largest >= shape.gpus and not shape.needs_host:
        return Reason(Why.NOT_CHOSEN)
    return Reason(Why.NO_ROOM, {**asked, "idle": idle, "largest": largest})


def _explain_tasks(state: ClusterState, shape: Shape) -> Reason:
    """Which role of a job for which GPUs are idle has the least room for its tasks, each role looked at by itself."""
    capacity = state.capacity
    allowed, types = capacity.allowed(shape), capacity.types_for(shape)
    nodes = [row for row, _ in state.nodes.present() if capacity.up[row] and allowed >> row & 1]
    rooms = []
    for role in shape.roles:
        usable = [row for row in nodes if not role.gpus or state.nodes.type_of[row] in types]
        rooms.append((sum(_room(capacity, role, row) for row in usable), role))
    room, role = min(rooms, key=lambda each: each[0] - each[1].count)
    needs: dict[str, float | str] = {"cpus": role.cpus, "memory": format_bytes(role.memory_bytes)}
    asked: dict[str, float | str] = {"gpus": shape.gpus, "where": _where(shape)}
    return Reason(Why.NO_TASK_ROOM, {**asked, "role": role.name, "count": role.count, "room": room, **needs})


def _room(capacity: Capacity, role: Role, node: int) -> int:
    """Tasks of a role that a node would hold now, if it had no others."""
    limits = [role.count]
    limits += [free // need for free, need in zip(capacity.free_host(node), task_needs(role), strict=True) if need]
    limits += [capacity.idle[node].bit_count() // role.gpus] if role.gpus else []
    return min(limits)


def _where(shape: Shape) -> str:
    kinds = f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    memory = f" with {format_bytes(shape.gpu_memory_bytes)}" if shape.gpu_memory_bytes else ""
    slices = " as MIG slices" if shape.sharing == frozenset((Sharing.MIG,)) else ""
    labels = f" on nodes with {describe_labels(shape.require)}" if shape.require else ""
    within = f" within one {shape.within}" if shape.within else ""
    return kinds + memory + slices + labels + within
