"""Fragmentation gradient descent: place each job where it leaves the least GPU capacity that typical jobs cannot use.

From "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023).

Typical jobs are classes m, each with CPUs, GPUs, thousandths of a GPU, GPU types and a popularity p_m; popularities sum
to 1. A node has free CPUs c, devices with f_g thousandths free, and a GPU type t. A class fits a node of one of its types
if c >= cpus_m and at least gpus_m devices have f_g >= milli_m. To a class that fits, the devices with f_g >= milli_m are
usable; to all others, and to classes without GPUs, nothing is. The fragmentation of a node is what is free, less what is
usable on average:

    F = R - U,   R = sum_g f_g,   U = sum over m that fit of p_m sum_g f_g [f_g >= milli_m]

Classes of one GPU make U a sum over devices, since a class fits as soon as one device has room. Classes of several ask
for whole GPUs, so they see only the number k of idle devices. With a, the number of CPU demands of classes that c meets,
and b, the number of GPU shares of classes that f meets, two small tables hold all of it:

    one[t, a, b]  = sum {p_m : gpus_m = 1, of rank <= a and <= b, of type t}
    many[t, a, k] = 1000 k sum {p_m : 1 < gpus_m <= k, of rank <= a, of type t}
    U             = sum_g f_g one[t, a, b(f_g)] + many[t, a, k]

A job that takes d thousandths lowers F by d - U + U', with U' after it. The published scheduler scores a node by
floor(100 sigmoid(F - F')), in GPUs, so that small differences tie; the first node of the highest score gets the job.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwise.core.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.jobs import JobTable, Shape
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.candidates import Candidates, candidates, on_node, over_nodes, takes_fraction

CPU_SLACK = 1e-9
GAIN_SLACK_MILLI = 1e-6
"""Far below any real difference, far above rounding: equal gains tie in whatever order they were summed."""


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Jobs that ask for the same, and which part of all jobs they are."""

    cpus: float
    gpus: int
    milli: int
    """Thousandths of each GPU; fewer than 1000 only with one GPU."""
    gpu_types: tuple[str, ...]
    """GPU types it may run on; empty is any."""
    popularity: float

    def __post_init__(self) -> None:
        if self.gpus and not 0 < self.milli <= WHOLE_GPU_MILLI:
            raise GpuwiseError(f"a class of jobs asks for {self.milli}/1000 of a GPU; it must be 1 to 1000")
        if self.gpus > 1 and self.milli != WHOLE_GPU_MILLI:
            raise GpuwiseError(f"a class of jobs asks for {self.milli}/1000 of {self.gpus} GPUs; of several it must be 1000")


def typical_classes(jobs: JobTable, share: float = 0.95) -> tuple[TaskClass, ...]:
    """The most frequent kinds of jobs that together make ``share`` of all; their popularities sum to 1."""
    counts: Counter[tuple[float, int, int, tuple[str, ...]]] = Counter()
    by_shape = np.bincount(jobs.shape[: len(jobs)], minlength=len(jobs.shapes)).tolist()
    for shape, count in zip(jobs.shapes, by_shape, strict=True):
        types = tuple(sorted(set(shape.gpu_types))) if shape.gpus else ()
        counts[shape.cpus, shape.milli if shape.gpus else 0, shape.gpus, types] += count
    ordered = sorted(((count, kind) for kind, count in counts.items()), reverse=True)
    kept, covered = [], 0
    for count, kind in ordered:
        if covered >= share * len(jobs):
            break
        kept.append((count, kind))
        covered += count
    return tuple(TaskClass(cpus, gpus, milli, types, count / covered) for count, (cpus, milli, gpus, types) in kept)


class FragmentationDescent:
    """Finds the place that raises fragmentation least, as typical jobs feel it; the lowest node and device on a tie.

    A gang that no node holds goes by best fit. Memory only rules nodes and devices out.
    """

    def __init__(self, classes: Sequence[TaskClass]) -> None:
        self.classes = tuple(classes)
        self._tables: dict[tuple[tuple[str, ...], int], UsableTables] = {}

    def __call__(self, capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
        """Room for ``gpus`` GPUs of a shape, or none."""
        room = candidates(capacity, shape, gpus)
        if not len(room.nodes):
            return over_nodes(capacity, shape, gpus)
        gain = self._gain_milli(capacity, room, shape, gpus)
        row, device = divmod(first_of_best(gain), gain.shape[1])
        return on_node(capacity, shape, gpus, int(room.nodes[row]), device)

    def _gain_milli(self, capacity: Capacity, room: Candidates, shape: Shape, gpus: int) -> Array:
        """By how much each choice lowers fragmentation: nodes × devices for a fraction of a GPU, else nodes × 1."""
        tables = self._tables_of(capacity)
        gpu_type, free_cpus = capacity.nodes.gpu_type[room.nodes], capacity.free_cpus[room.nodes]
        left_cpus = free_cpus - shape.cpus * (gpus / shape.gpus if shape.gpus else 1.0)
        idle = room.idle.sum(axis=1)
        before, after = tables.rows(gpu_type, free_cpus), tables.rows(gpu_type, left_cpus)
        usable = tables.usable(before, room.free_milli, idle)[:, None]
        if takes_fraction(shape, gpus):
            gain = shape.milli - usable + tables.usable_less_part(after, room, idle, shape.milli)
            return np.where(room.fits, gain, -np.inf)
        gain = gpus * WHOLE_GPU_MILLI - usable
        gain += tables.usable_less_whole(after, room.free_milli, idle, gpus)[:, None]
        return gain

    def _tables_of(self, capacity: Capacity) -> UsableTables:
        key = tuple(capacity.nodes.types), capacity.open_milli.shape[1]
        known = self._tables.get(key)
        if known is None:
            known = self._tables[key] = UsableTables(self.classes, *key)
        return known


def first_of_best(gain_milli: Array) -> int:
    """The first choice, counted row by row, whose score floor(100 sigmoid(gain)) is the highest.

    The score only grows with the gain, so the choices that tie with the best are those above one threshold.
    """
    best = float(gain_milli.max())
    score = min(math.floor(100 / (1 + math.exp(-(best + GAIN_SLACK_MILLI) / WHOLE_GPU_MILLI))), 99)
    least = WHOLE_GPU_MILLI * math.log(score / (100 - score)) - GAIN_SLACK_MILLI if score else -sys.float_info.max
    return int((gain_milli >= min(least, best)).argmax())


class UsableTables:
    """What of a node typical jobs can use: the tables ``one`` and ``many``, of one row for each GPU type and CPU rank."""

    def __init__(self, classes: Sequence[TaskClass], types: Sequence[str], devices: int) -> None:
        useful = [each for each in classes if 0 < each.gpus <= max(devices, 1)]
        self._cpus = np.unique([each.cpus for each in useful])
        shares = np.unique([each.milli for each in useful if each.gpus == 1])
        self._share_rank = np.searchsorted(shares, np.arange(WHOLE_GPU_MILLI + 1), side="right")
        one = np.zeros((len(types), len(self._cpus) + 1, len(shares) + 1))
        many = np.zeros((len(types), len(self._cpus) + 1, devices + 1))
        for each in useful:
            runs_on = [code for code, name in enumerate(types) if not each.gpu_types or name in each.gpu_types]
            rank = np.searchsorted(self._cpus, each.cpus, side="right")
            if each.gpus == 1:
                one[runs_on, rank, self._share_rank[each.milli]] += each.popularity
            else:
                many[runs_on, rank, each.gpus] += each.popularity
        self._one = one.cumsum(axis=1).cumsum(axis=2).reshape(-1, one.shape[2])
        self._many = many.cumsum(axis=1).cumsum(axis=2).reshape(-1, devices + 1) * (WHOLE_GPU_MILLI * np.arange(devices + 1))

    def rows(self, gpu_type: Array, free_cpus: Array) -> Array:
        """The row of each node in the tables."""
        rank = np.searchsorted(self._cpus, free_cpus + CPU_SLACK, side="right")
        return gpu_type * (len(self._cpus) + 1) + rank

    def usable(self, rows: Array, free_milli: Array, idle: Array) -> Array:
        """U of each node."""
        on_devices: Array = self._on_devices(rows, free_milli).sum(axis=1)
        return on_devices + self._of_idle(rows, idle)

    def usable_less_whole(self, rows: Array, free_milli: Array, idle: Array, gpus: int) -> Array:
        """U' of each node after it gave ``gpus`` idle devices (or none) away."""
        on_devices = self._on_devices(rows, free_milli).sum(axis=1) - gpus * WHOLE_GPU_MILLI * self._one[rows, -1]
        return on_devices + self._of_idle(rows, idle - gpus)

    def usable_less_part(self, rows: Array, room: Candidates, idle: Array, milli: int) -> Array:
        """U' of each node after it gave a part of each device in turn; only where the part fits is it of any meaning."""
        now = self._on_devices(rows, room.free_milli)
        then = self._on_devices(rows, np.maximum(room.free_milli - milli, 0))
        others = now.sum(axis=1)[:, None] - now
        still_idle = self._of_idle(rows, np.maximum(idle - 1, 0))[:, None]
        return others + then + np.where(room.idle, still_idle, self._of_idle(rows, idle)[:, None])

    def _on_devices(self, rows: Array, free_milli: Array) -> Array:
        width = self._one.shape[1]
        place = self._share_rank.take(free_milli)
        place += (rows * width)[:, None]
        on_devices: Array = self._one.take(place) * free_milli
        return on_devices

    def _of_idle(self, rows: Array, idle: Array) -> Array:
        found: Array = self._many.take(rows * self._many.shape[1] + idle)
        return found
