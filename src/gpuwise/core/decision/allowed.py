"""Whether a job may have a placement at all, whatever is free: GPU type, size, sharing mode, labels, roles."""

from __future__ import annotations

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import EXCLUSIVE
from gpuwise.core.job.table import Shape
from gpuwise.core.job.tasks import wrong_tasks
from gpuwise.core.spec import Sharing
from gpuwise.core.units import WHOLE_GPU_MILLI


def wrong_placement(placement: Placement, shape: Shape, capacity: Capacity) -> str:
    """What a job of a shape may not have of a placement; empty if it may have it, if it is free."""
    grants, sharing, milli, _, tasks = placement  # unpacked at once: this is checked for every start of a simulation
    types, type_of = capacity.types_for(shape), capacity.nodes.type_of
    gpus = 0
    for node, devices, _ in grants:
        if not 0 <= node < len(type_of):
            return f"there is no node {node}"
        if type_of[node] not in types:
            return f"it may not run on GPU type {capacity.nodes.types[type_of[node]]}"
        gpus += devices.bit_count()
    if (shape.roles or tasks) and (wrong := _wrong_roles(placement, shape, len(type_of))):
        return wrong
    if (shape.require or shape.within) and (wrong := capacity.misfit(placement, shape)):
        return wrong
    if not shape.min_gpus <= gpus <= shape.max_gpus:
        return f"it may run on {shape.min_gpus} to {shape.max_gpus} GPUs, not {gpus}"
    if sharing is EXCLUSIVE:
        if not shape.alone:
            return f"it does not allow {sharing.name}"
        return "" if milli == WHOLE_GPU_MILLI else f"{milli}/1000 of a GPU cannot be held alone"
    if sharing not in shape.sharing:
        return f"it does not allow {sharing.name}"
    if not 1 <= milli <= WHOLE_GPU_MILLI:
        return f"a share of {milli}/1000 of a GPU is none"
    return _wrong_slices(placement, capacity) if sharing is Sharing.MIG else ""


def _wrong_roles(placement: Placement, shape: Shape, nodes: int) -> str:
    """A job with roles has a number of tasks of each that it may have, with the GPUs they need where they are."""
    unknown = [task.node for task in placement.tasks if not 0 <= task.node < nodes]
    return f"there is no node {unknown[0]}" if unknown else wrong_tasks(placement, shape)


def _wrong_slices(placement: Placement, capacity: Capacity) -> str:
    """A placement on slices says how large they are; whether they are free is for the capacity to say."""
    for node, devices, start in placement.grants:
        piece = capacity.slice_at(node, devices.bit_length() - 1, start)
        if devices.bit_count() != 1 or (piece is not None and piece.milli != placement.milli):
            return f"{placement.milli}/1000 of a GPU is not a slice at {start} of one device"
    return ""
