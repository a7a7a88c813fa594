"""Why a job does not fit, with the numbers."""

from __future__ import annotations

from gpuwise.core.commands import Reason, Why
from gpuwise.core.jobs import Shape
from gpuwise.core.spec import Sharing
from gpuwise.core.state import ClusterState
from gpuwise.core.units import WHOLE_GPU_MILLI, format_bytes

__all__ = ["Reason", "Why", "explain_room"]


def explain_room(state: ClusterState, job: int) -> Reason:
    """Why the capacity as it is now does not hold a job."""
    shape = state.jobs.shape_of(job)
    capacity = state.capacity
    types = capacity.types_for(shape)
    total = sum(int(gpus) for gpus, code in zip(state.nodes.gpus, state.nodes.type_of, strict=False) if code in types)
    total -= sum(lost.bit_count() for node, lost in capacity.lost.items() if state.nodes.type_of[node] in types)
    asked: dict[str, float | str] = {"gpus": shape.gpus, "where": _where(shape), "total": total}
    if shape.min_gpus > total:
        return Reason(Why.NEVER_FITS, asked)
    idle = sum(capacity.idle_total[code] for code in types)
    host: dict[str, float | str] = {"cpus": shape.cpus, "memory": format_bytes(shape.memory_bytes)}
    if not shape.whole and shape.gpus:
        open_to_it = bool((capacity.open_milli >= shape.milli).any())
        if shape.needs_host and (idle or open_to_it):
            return Reason(Why.NO_HOST_ROOM, {**asked, **host})
        return Reason(Why.NO_SHARE, {"percent": 100 * shape.milli / WHOLE_GPU_MILLI, **asked})
    largest = max((count for code in types for count, nodes in enumerate(capacity.by_idle[code]) if nodes), default=0)
    if idle >= shape.gpus and largest >= min(shape.gpus, 1) and shape.needs_host:
        return Reason(Why.NO_HOST_ROOM, {**asked, **host})
    if largest >= shape.gpus and not shape.needs_host:
        return Reason(Why.NOT_CHOSEN)
    return Reason(Why.NO_ROOM, {**asked, "idle": idle, "largest": largest})


def _where(shape: Shape) -> str:
    kinds = f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    memory = f" with {format_bytes(shape.gpu_memory_bytes)}" if shape.gpu_memory_bytes else ""
    slices = " as MIG slices" if shape.sharing == frozenset((Sharing.MIG,)) else ""
    return kinds + memory + slices
