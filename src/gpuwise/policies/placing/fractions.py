"""Parts of a GPU: beside other jobs on the same device, or on a MIG slice."""

from __future__ import annotations

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import first
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.placing.eligible import Hosts, as_mask, favoured, idle_nodes

_PREFERRED = (Sharing.SHARED, Sharing.TIME_SLICE, Sharing.EXCLUSIVE, Sharing.MIG)


def sharing_of(shape: Shape) -> Sharing:
    """How a job uses a fraction of a GPU: beside others where it allows that, in time slices, alone, or on a slice."""
    return next(mode for mode in _PREFERRED if mode in shape.sharing)


def on_slice(capacity: Capacity, shape: Shape) -> Placement | None:
    """The smallest free MIG slice on which a share of a GPU fits."""
    types, type_of = capacity.types_for(shape), capacity.nodes.type_of
    hosts = Hosts(capacity, shape).with_room(1)
    free = [
        (piece.milli, node, device, piece.start)
        for (node, device), pieces in capacity.free_slices.items()
        if type_of[node] in types and capacity.up[node] and hosts >> node & 1
        for piece in pieces
        if piece.milli >= shape.milli and piece.memory_bytes >= shape.gpu_bytes
    ]
    if not free:
        return None
    milli, node, device, start = min(free)
    return Placement((Grant(node, 1 << device, start),), Sharing.MIG, milli)


def share(node: int, device: int, shape: Shape) -> Placement:
    """A fraction of one device."""
    return Placement((Grant(node, 1 << device),), sharing_of(shape), shape.milli)


def open_devices(capacity: Capacity, shape: Shape) -> Array:
    """Where a fraction of a GPU fits beside others: a nodes × devices array of booleans."""
    fits: Array = (capacity.open_milli >= shape.milli) & (capacity.open_memory >= shape.gpu_bytes)
    fits &= capacity.open_sharing == sharing_of(shape)
    types = capacity.types_for(shape)
    usable = np.isin(capacity.nodes.gpu_type[: len(fits)], types) & np.asarray(capacity.up, dtype=bool)
    if shape.require or shape.avoid:
        usable &= as_mask(capacity.allowed(shape), len(fits))
    if shape.needs_host:
        usable &= (capacity.free_cpu_milli >= shape.cpu_milli) & (capacity.free_host_bytes >= shape.host_bytes)
    found: Array = fits & usable[:, None]
    return found


def best_share(capacity: Capacity, shape: Shape) -> Placement | None:
    """The open device with the least left, else the first idle one."""
    if not capacity.open_milli.size:
        return None
    left = np.where(open_devices(capacity, shape), capacity.open_milli, WHOLE_GPU_MILLI + 1)
    best = int(left.argmin())
    node, device = divmod(best, left.shape[1])
    if left[node, device] <= WHOLE_GPU_MILLI:
        return share(node, device, shape)
    return _on_idle(capacity, shape)


def worst_share(capacity: Capacity, shape: Shape) -> Placement | None:
    """An idle device, else the open one with the most left."""
    found = _on_idle(capacity, shape)
    if found is not None or not capacity.open_milli.size:
        return found
    left = np.where(open_devices(capacity, shape), capacity.open_milli, 0)
    node, device = divmod(int(left.argmax()), left.shape[1])
    return share(node, device, shape) if left[node, device] else None


def first_share(capacity: Capacity, shape: Shape) -> Placement | None:
    """The first device that has room, open or idle."""
    idle = _on_idle(capacity, shape)
    fits = open_devices(capacity, shape)
    if not fits.any():
        return idle
    node, device = divmod(int(fits.argmax()), fits.shape[1])
    found = share(node, device, shape)
    return found if idle is None else min(idle, found, key=lambda each: each.grants[0])


def _on_idle(capacity: Capacity, shape: Shape) -> Placement | None:
    nodes = idle_nodes(capacity, shape)
    if not nodes:
        return None
    node = favoured(nodes, capacity.preferred(shape))
    return share(node, first(capacity.usable(node, shape)), shape)
