"""MIG partitions of a GPU: the one on which a set of jobs is fastest in sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from gpuwise.core.commands import Grant, MigSlice, Placement
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array
from gpuwise.devices.mig import mig_profiles, partitions, slice_of, slices_of
from gpuwise.policies.beliefs import speeds
from gpuwise.policies.placing.eligible import on_one_node

Where = tuple[int, int]
"""A node and a device of it."""
ProfileSpeeds = tuple[float, ...]
"""A job's believed speed on each profile of a GPU type; 0 where it does not fit or nothing is known."""
_NEVER = -1e6


class Partition(NamedTuple):
    """The slices of a GPU, for some jobs."""

    speed: float
    """The sum over the jobs; one alone on a whole GPU has about 1."""
    slices: tuple[MigSlice, ...]
    of: tuple[int, ...]
    """The number of each job's slice."""


def may_slice(shape: Shape) -> bool:
    """Whether a job may be on a slice: it allows that, needs one GPU and has no other tasks."""
    return shape.gpus == 1 and Sharing.MIG in shape.sharing and not shape.roles


def alone(where: Where) -> Placement:
    """A whole GPU."""
    return on_one_node(where[0], 1 << where[1])


def on_mig_slice(where: Where, piece: MigSlice) -> Placement:
    """A placement on a slice."""
    node, device = where
    return Placement((Grant(node, 1 << device, piece.start),), Sharing.MIG, piece.milli)


def profile_speeds(view: ClusterView, job: int, gpu: str, where: Where) -> ProfileSpeeds:
    """How fast a job is believed to be on each profile of a GPU."""
    profiles = mig_profiles(gpu)
    needed = view.shape(job).gpu_bytes
    places = [on_mig_slice(where, slice_of(gpu, each.name, each.starts[0])) for each in profiles]
    found = speeds(view, (job,) * len(places), places, ((),) * len(places))
    fits = [each.memory_bytes >= needed for each in profiles]
    return tuple(speed if fit and not math.isnan(speed) else 0.0 for speed, fit in zip(found, fits, strict=True))


def best_partition(gpu: str, rows: Sequence[ProfileSpeeds]) -> Partition | None:
    """The partition on which jobs with these speeds, each on its own slice, are fastest in sum; None if none fits."""
    order = sorted(range(len(rows)), key=rows.__getitem__)
    found = _best_partition(gpu, tuple(rows[each] for each in order))
    if found is None:
        return None
    of = dict(zip(order, found.of, strict=True))
    return found._replace(of=tuple(of[each] for each in range(len(rows))))


def as_one_slice(gpu: str) -> Partition:
    """A GPU as a single slice, for a job that may only be on a slice and whose speed is unknown."""
    largest = max(mig_profiles(gpu), key=lambda each: each.memory_bytes)
    return Partition(1.0, (slice_of(gpu, largest.name, largest.starts[0]),), (0,))


def assign(values: Array) -> list[tuple[int, int]]:
    """Pairs (row, column) with the largest sum of values, each row and column once at most, none of 0 or less."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(np.where(values > 0, values, _NEVER), maximize=True)
    return [
        (row, column) for row, column in zip(rows.tolist(), columns.tolist(), strict=True) if values[row, column] > 0
    ]


@lru_cache(maxsize=65536)
def _best_partition(gpu: str, rows: tuple[ProfileSpeeds, ...]) -> Partition | None:
    table = np.asarray(rows)
    best: Partition | None = None
    for slices, profiles in _partitions(gpu):
        if len(slices) < len(rows):
            continue
        values = table[:, profiles]
        pairs = assign(values)
        total = float(sum(values[pair] for pair in pairs))
        if len(pairs) == len(rows) and (best is None or total > best.speed):
            best = Partition(total, slices, tuple(column for _, column in pairs))
    return best


@cache
def _partitions(gpu: str) -> tuple[tuple[tuple[MigSlice, ...], tuple[int, ...]], ...]:
    """The partitions that differ in their profiles: their slices, and the number of each slice's profile."""
    number = {profile.name: at for at, profile in enumerate(mig_profiles(gpu))}
    found: dict[tuple[int, ...], tuple[tuple[MigSlice, ...], tuple[int, ...]]] = {}
    for layout in partitions(gpu):
        slices = slices_of(gpu, layout)
        profiles = tuple(number[each.profile] for each in slices)
        found.setdefault(tuple(sorted(profiles)), (slices, profiles))
    return tuple(found.values())
