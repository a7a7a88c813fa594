"""Fragmentation gradient descent: place each job where it leaves the least GPU capacity that typical jobs cannot use.

From "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023).

Typical jobs are classes m, each with CPUs, GPUs, thousandths of a GPU, GPU types and a popularity p_m; popularities sum
to 1. A node has free CPUs c, devices with f_g thousandths free, and a GPU type t. A class fits a node if it may run on
t, c >= cpus_m, and at least gpus_m devices have f_g >= milli_m. To a class that fits, the devices with f_g >= milli_m
are usable; to the others, and to classes without GPUs, nothing is. The fragmentation of a node is what is free, less
what is usable on average:

    F = R - U,   R = sum_g f_g,   U = sum over m that fit of p_m sum_g f_g [f_g >= milli_m]

Classes of one GPU make U a sum over devices, since such a class fits as soon as one device has room. Classes of several
ask for whole GPUs, so they see only the number k of idle devices. CPUs matter by their rank a: how many of the distinct
CPU demands of classes c meets. So two tables have all of it, here over the classes of rank <= a that may run on t:

    one[t, a, f]  = f sum {p_m : gpus_m = 1, milli_m <= f}
    many[t, a, k] = 1000 k sum {p_m : 1 < gpus_m <= k}
    U             = sum_g one[t, a, f_g] + many[t, a, k]

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

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.shape import Shape
from gpuwise.core.job.table import JobTable
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI, cpu_milli
from gpuwise.policies.placing.candidates import Candidates, candidates, on_node, over_nodes, takes_fraction

BLOCK = 2000
"""Nodes that are scored at a time: arrays that outgrow the cache take several times as long."""
GAIN_SLACK_MILLI = 1e-6
"""Far below any real difference, far above rounding: equal gains tie whatever the order of summation."""


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Jobs that ask for the same, and their share of all jobs."""

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
            raise GpuwiseError(
                f"a class of jobs asks for {self.milli}/1000 of {self.gpus} GPUs; of several it must be 1000"
            )


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
    """The placement that raises fragmentation least for typical jobs; the lowest node and device on a tie.

    A gang that fits no single node is placed by best fit. Memory only rules nodes and devices out.
    """

    def __init__(self, classes: Sequence[TaskClass]) -> None:
        self.classes = tuple(classes)
        self._tables: dict[tuple[tuple[str, ...], int], UsableTables] = {}

    def __call__(self, capacity: Capacity, shape: Shape, gpus: int) -> Placement | None:
        """Room for ``gpus`` GPUs of a shape, or none."""
        room = candidates(capacity, shape, gpus)
        if not len(room.nodes):
            return over_nodes(capacity, shape, gpus)
        blocks = (Candidates(*(part[at : at + BLOCK] for part in room)) for at in range(0, len(room.nodes), BLOCK))
        gain = np.concatenate([self._gain_milli(capacity, block, shape, gpus) for block in blocks])
        row, device = divmod(first_of_best(gain), gain.shape[1])
        return on_node(capacity, shape, gpus, int(room.nodes[row]), device)

    def _gain_milli(self, capacity: Capacity, room: Candidates, shape: Shape, gpus: int) -> Array:
        """By how much each choice lowers fragmentation: nodes × devices for a fraction of a GPU, else nodes × 1."""
        tables = self._tables_of(capacity)
        gpu_type, free_cpus = capacity.nodes.gpu_type.take(room.nodes), capacity.free_cpu_milli.take(room.nodes)
        left_cpus = free_cpus - shape.host_part(gpus)[0]
        idle = room.idle @ np.ones(room.idle.shape[1], dtype=np.int64)
        usable = tables.usable(tables.rows(gpu_type, free_cpus), room.free_milli, idle)
        after = tables.rows(gpu_type, left_cpus)
        if not takes_fraction(shape, gpus):
            left = tables.usable_less_whole(after, room.free_milli, idle, gpus)
            return (gpus * WHOLE_GPU_MILLI - usable + left)[:, None]
        gain = tables.usable_less_part(after, room, idle, shape.milli)
        gain += (shape.milli - usable)[:, None]
        return np.where(room.fits, gain, -np.inf)

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
    """What typical jobs can use of a node: the tables ``one`` and ``many``, a row for each kind of GPU and CPU rank.

    GPU types that no class distinguishes are of one kind.
    """

    def __init__(self, classes: Sequence[TaskClass], types: Sequence[str], devices: int) -> None:
        useful = [each for each in classes if 0 < each.gpus <= devices]
        self._cpus = np.unique(np.array([cpu_milli(each.cpus) for each in useful], dtype="i8"))
        allowed = [tuple(not each.gpu_types or name in each.gpu_types for each in useful) for name in types]
        kinds = list(dict.fromkeys(allowed))
        self._kind = np.array([kinds.index(each) for each in allowed], dtype=np.int64)
        one = np.zeros((len(kinds), len(self._cpus) + 1, WHOLE_GPU_MILLI + 1))
        many = np.zeros((len(kinds), len(self._cpus) + 1, devices + 1))
        for number, each in enumerate(useful):
            runs_on = [kind for kind, runs in enumerate(kinds) if runs[number]]
            table, demand = (one, each.milli) if each.gpus == 1 else (many, each.gpus)
            table[runs_on, np.searchsorted(self._cpus, cpu_milli(each.cpus), side="right"), demand] += each.popularity
        self._one = _summed(one) * np.arange(WHOLE_GPU_MILLI + 1)
        self._many = _summed(many) * (WHOLE_GPU_MILLI * np.arange(devices + 1))
        # Products with ones are sums over devices, several times as fast as `sum` is on rows this short.
        self._ones = np.ones(devices)

    def rows(self, gpu_type: Array, free_cpu_milli: Array) -> Array:
        """The row of each node in the tables."""
        rank = np.searchsorted(self._cpus, free_cpu_milli, side="right")
        return self._kind.take(gpu_type) * (len(self._cpus) + 1) + rank

    def usable(self, rows: Array, free_milli: Array, idle: Array) -> Array:
        """U of each node."""
        usable: Array = self._on_devices(rows, free_milli) @ self._ones
        return usable + self._of_idle(rows, idle)

    def usable_less_whole(self, rows: Array, free_milli: Array, idle: Array, gpus: int) -> Array:
        """U' of each node after ``gpus`` of its idle devices (or none) are allocated."""
        usable: Array = self._on_devices(rows, free_milli) @ self._ones
        usable -= gpus * self._one[:, -1].take(rows)
        return usable + self._of_idle(rows, idle - gpus)

    def usable_less_part(self, rows: Array, room: Candidates, idle: Array, milli: int) -> Array:
        """U' of each node after a part of each device in turn is allocated; valid only where the part fits."""
        usable = self._on_devices(rows, np.maximum(room.free_milli - milli, 0))
        now, on_idle = self._on_devices(rows, room.free_milli), self._of_idle(rows, idle)
        usable -= now
        usable += (now @ self._ones + on_idle)[:, None]
        usable -= room.idle * (on_idle - self._of_idle(rows, np.maximum(idle - 1, 0)))[:, None]
        return usable

    def _on_devices(self, rows: Array, free_milli: Array) -> Array:
        """Nodes × devices: the part of each device that classes of one GPU can use."""
        usable: Array = self._one.take((rows * self._one.shape[1])[:, None] + free_milli)
        return usable

    def _of_idle(self, rows: Array, idle: Array) -> Array:
        """What classes of several GPUs can use of each node, by its number of idle devices."""
        usable: Array = self._many.take(rows * self._many.shape[1] + idle)
        return usable


def _summed(by_demand: Array) -> Array:
    """Popularity of the classes up to each rank of CPUs and each demand, types and ranks in one."""
    return by_demand.cumsum(axis=1).cumsum(axis=2).reshape(-1, by_demand.shape[2])
