"""What jobs gain from one GPU type over another: their speeds on each, and the queue grouped by gain."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.queue import Entry
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import UnknownNameError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.catalogue import gpu_type
from gpuwise.policies.beliefs import speed, time_left_s
from gpuwise.policies.placing.fractions import sharing_of

RATES, UTILIZATION = SIGNALS = ("rates", "utilization")
"""Where a job's speed on a GPU type is from: measured or predicted speeds, or its GPU utilization alone."""
MOST_KINDS = 48
"""Kinds of jobs that are distinguished among those that ask for the same; a queue of more is sampled."""
ONLY_HERE = 1e9
"""The logarithm of the gain of a job that cannot run on the older type."""


class Outlook(NamedTuple):
    """How long a job is believed to need on each GPU type, by the type's number."""

    times_s: tuple[float, ...]
    """Infinite where it may not run, or is believed to make no progress."""
    known: bool
    """Whether this is believed of the job itself, or only usual for the GPU types."""

    @property
    def by_speed(self) -> list[int]:
        """The GPU types it can run on, fastest first."""
        usable = [code for code, time_s in enumerate(self.times_s) if time_s < math.inf]
        return sorted(usable, key=self.times_s.__getitem__)


def outlook(view: ClusterView, job: int, signal: str = RATES) -> Outlook:
    """How long a job would still need on each GPU type.

    Where its speed on some type is unknown (a model that fails, no number, less than 0), the job is assumed to be as
    fast as is usual for the types, so that it is still placed. On a type with a speed of 0 it is never placed.
    """
    found, known = speeds(view, job, signal)
    return Outlook(tuple(time_left_s(view, job, each) for each in found), known)


def speeds(view: ClusterView, job: int, signal: str = RATES) -> tuple[tuple[float, ...], bool]:
    """How fast a job is on each GPU type, 0 where it cannot run, and whether that is known of the job itself."""
    usual = usual_speeds(view.nodes)
    allowed = view.capacity.types_for(view.shape(job))
    if signal == UTILIZATION:
        found = _by_utilization(view.jobs.gpu_util_frac.item(job), usual)
    else:
        found = tuple(_believed(view, job, code) if code in allowed else 0.0 for code in range(len(usual)))
    known = not any(map(math.isnan, found))
    if not known:
        found = tuple(most if each != 0 else 0.0 for each, most in zip(found, usual, strict=True))
    return tuple(each if code in allowed else 0.0 for code, each in enumerate(found)), known


def makes_no_progress(view: ClusterView, job: int) -> bool:
    """Whether a job is believed to make no progress on any GPU type here."""
    return not any(speeds(view, job)[0])


def log_gain(nodes: NodeTable, times_s: Sequence[float]) -> float:
    """The logarithm of how many times as fast a job is on the newest GPU type as on the oldest."""
    old, new = oldest_and_newest(nodes)
    if min(times_s) == math.inf:
        return -2 * ONLY_HERE
    if times_s[new] == math.inf or times_s[old] == math.inf:
        return ONLY_HERE * ((times_s[old] == math.inf) - (times_s[new] == math.inf))
    return math.log(max(times_s[old], 1e-9) / max(times_s[new], 1e-9))


def oldest_and_newest(nodes: NodeTable) -> tuple[int, int]:
    """The GPU types that are usually slowest and fastest."""
    usual = usual_speeds(nodes)
    codes = range(len(usual))
    return min(codes, key=usual.__getitem__), max(codes, key=usual.__getitem__)


def usual_speeds(nodes: NodeTable) -> tuple[float, ...]:
    """How fast GPU types usually are: as declared for the cluster, else by their FP32 peaks."""
    declared = tuple(nodes.type_speed)
    return declared if len(set(declared)) > 1 else _peaks(tuple(nodes.types))


@lru_cache(maxsize=64)
def _peaks(types: tuple[str, ...]) -> tuple[float, ...]:
    peaks = [_peak(name) for name in types]
    slowest = min((peak for peak in peaks if peak), default=1.0)
    return tuple((peak or slowest) / slowest for peak in peaks)


def _peak(name: str) -> float:
    try:
        return gpu_type(name).fp32_tflops or 0.0
    except UnknownNameError:
        return 0.0


def _believed(view: ClusterView, job: int, code: int) -> float:
    """Believed speed on a GPU type, alone there; 0 where there are too few GPUs, NaN where nothing is known."""
    placement = _somewhere(view.nodes, view.shape(job), code)
    return 0.0 if placement is None else speed(view, job, placement)


def _by_utilization(busy_frac: float, usual: tuple[float, ...]) -> tuple[float, ...]:
    """Amdahl's law: only the part of the time in which the GPU is busy shrinks on a faster one."""
    if not 0 <= busy_frac <= 1:
        return (math.nan,) * len(usual)
    return tuple(1 / (1 - busy_frac + busy_frac / speed) for speed in usual)


def _somewhere(nodes: NodeTable, shape: Shape, code: int) -> Placement | None:
    """Where a job would be if the nodes of a GPU type were empty; None if they are too few for it."""
    grants: list[Grant] = []
    left = shape.gpus
    first = nodes.type_of.index(code)
    for node in range(first, len(nodes)):
        if nodes.type_of[node] == code and node not in nodes.removed:
            count = min(left, nodes.gpus.item(node))
            grants.append(Grant(node, (1 << count) - 1))
            left -= count
            if left <= 0:
                alone = (shape.whole and shape.alone) or sharing_of(shape) is Sharing.EXCLUSIVE
                sharing = Sharing.EXCLUSIVE if alone else sharing_of(shape)
                return Placement(tuple(grants), sharing, WHOLE_GPU_MILLI if alone else shape.milli)
    return None


# -- jobs by kind -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Waiting jobs of one shape and about the same gain: a part of their lane."""

    lane: Sequence[Entry]
    at: int
    end: int
    outlook: Outlook
    """Of the first job."""
    gpus: float
    """That all jobs together ask for."""


def groups(view: ClusterView, signal: str, each: bool) -> Iterator[JobGroup]:
    """The waiting jobs grouped by kind, or ``each`` by itself; they are in the order of their gains."""
    for shape, lane in view.waiting.lanes.items():
        starts = list(range(len(lane))) if each else _kinds(lane)
        gpus = _gpus(view.jobs.shapes[shape])
        for at, end in zip(starts, (*starts[1:], len(lane)), strict=True):
            yield JobGroup(lane, at, end, outlook(view, lane[at][1], signal), gpus * (end - at))


def wanted_milli(view: ClusterView) -> int:
    """Thousandths of GPUs that all waiting jobs ask for."""
    lanes = ((view.jobs.shapes[shape], lane) for shape, lane in view.waiting.lanes.items())
    return sum(len(lane) * shape.gpus * shape.milli for shape, lane in lanes)


def demand_by_kind(view: ClusterView, signal: str) -> dict[tuple[float, ...], float]:
    """GPUs allocated to jobs of each kind, a kind being how slow they are on each type; of many jobs, a sample."""
    demand: dict[tuple[float, ...], float] = {}
    running = view.placed_jobs()
    for job in running[:: len(running) // MOST_KINDS + 1].tolist():
        found, _ = speeds(view, job, signal)
        slowness = tuple(max(round(1 / each, 3), 1e-3) if each else math.inf for each in found)
        if min(slowness) < math.inf:
            demand[slowness] = demand.get(slowness, 0.0) + view.jobs.held_gpus.item(job)
    return demand


def _kinds(lane: Sequence[Entry]) -> list[int]:
    """Where each run of equal ranks begins; an even sample with the last one if there are too many."""
    starts = [0]
    while (end := bisect_right(lane, (lane[starts[-1]][0], math.inf))) < len(lane):
        starts.append(end)
        if len(starts) > MOST_KINDS:
            return sorted({*np.linspace(0, len(lane) - 1, MOST_KINDS).astype(int).tolist()})
    return starts


def _gpus(shape: Shape) -> float:
    return shape.gpus * shape.milli / WHOLE_GPU_MILLI
