"""GPUs that are kept for a job which does not fit yet, so that smaller ones do not pass it for ever."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.decision.draft import Draft


@dataclass(frozen=True, slots=True)
class Reserved:
    """Where and when a job will start, if those who run end when they are believed to."""

    job: int
    placement: Placement
    at_s: float


def reserve(draft: Draft, job: int, find: Callable[[Capacity], Placement | None]) -> Reserved | None:
    """The first room that comes free for a job; None if there is none even when everybody has left."""
    view, then = draft.view, draft.capacity.fork()
    for remaining_s, other in sorted((view.time_left_s(other), other) for other in view.placed):
        if remaining_s == math.inf:
            return None
        then.give(view.placed[other], view.shape(other))
        placement = find(then)
        if placement is not None:
            return Reserved(job, placement, view.now_s + remaining_s)
    return None


def without(draft: Draft, reserved: Reserved) -> Capacity:
    """What others may have: what is free, except idle devices that are kept."""
    capacity = draft.capacity.fork()
    bare = replace(draft.view.shape(reserved.job), cpus=0.0, memory_bytes=0.0, roles=())
    for node, devices, _ in reserved.placement.grants:
        if kept := devices & capacity.idle[node]:
            capacity.take(Placement((Grant(node, kept),)), bare)
    return capacity
