"""The state of the cluster: who waits, who runs where, what is free. Only the engine changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpuwise.core.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.jobs import JobTable, Status
from gpuwise.core.nodes import NodeTable, node_table
from gpuwise.core.protocols import MakeRates, RateModel
from gpuwise.core.queue import WaitingQueue
from gpuwise.core.spec import ClusterSpec, Sharing, slice_name
from gpuwise.core.tables import Array, read_only
from gpuwise.core.units import WHOLE_GPU_MILLI


class Residents:
    """Who shares a device with whom; jobs alone on whole GPUs are not listed."""

    def __init__(self) -> None:
        self._on: dict[tuple[int, int], list[int]] = {}

    def add(self, job: int, placement: Placement) -> None:
        """A job comes to the devices of a shared placement."""
        for device in placement.devices():
            self._on.setdefault(device, []).append(job)

    def remove(self, job: int, placement: Placement) -> None:
        """A job leaves."""
        for device in placement.devices():
            self._on[device].remove(job)
            if not self._on[device]:
                del self._on[device]

    def on(self, node: int, device: int) -> Sequence[int]:
        """The jobs that share a device."""
        return self._on.get((node, device), ())

    def neighbours(self, job: int, placement: Placement) -> tuple[int, ...]:
        """The other jobs on the devices of a placement; those on MIG slices do not disturb each other."""
        if placement.sharing is Sharing.EXCLUSIVE or placement.sharing is Sharing.MIG:
            return ()
        found = {other for device in placement.devices() for other in self._on.get(device, ()) if other != job}
        return tuple(sorted(found))


class Holders:
    """The jobs that hold GPUs as an array, in no order, for passes over all of them."""

    def __init__(self) -> None:
        self._jobs: Array = np.zeros(64, dtype="i8")
        self._at: dict[int, int] = {}

    def add(self, job: int) -> None:
        """A job gets GPUs."""
        count = len(self._at)
        if count == len(self._jobs):
            self._jobs = np.concatenate([self._jobs, np.zeros_like(self._jobs)])
        self._jobs[count] = job
        self._at[job] = count

    def remove(self, job: int) -> None:
        """A job gives its GPUs back; the last one takes its place."""
        gap = self._at.pop(job)
        last = len(self._at)
        if gap != last:
            moved = self._jobs.item(last)
            self._jobs[gap] = moved
            self._at[moved] = gap

    def array(self) -> Array:
        """Their rows, read-only."""
        return read_only(self._jobs[: len(self._at)])


class ClusterState:
    """Jobs, nodes and what is free, as columns and indexes."""

    def __init__(self, cluster: ClusterSpec, beliefs: MakeRates | None = None, jobs: JobTable | None = None) -> None:
        self.now_s = 0.0
        self.nodes = node_table(cluster)
        self.jobs = JobTable() if jobs is None else jobs
        self.capacity = Capacity(self.nodes)
        self.placed: dict[int, Placement] = {}
        """Where each job that holds GPUs holds them, in the order they came."""
        self.holders = Holders()
        self.residents = Residents()
        self.holds: dict[int, str] = {}
        """Jobs that may not be placed for now, and why not."""
        self.submitted = 0
        """Jobs submitted so far."""
        self.waiting = WaitingQueue(self.jobs, self._submitted_at)
        self.beliefs: RateModel = (beliefs or DeclaredRates)(self.jobs, self.nodes)

    def _submitted_at(self, job: int) -> float:
        at: float = self.jobs.submit_s.item(job)
        return at

    def status(self, job: int) -> Status:
        """Where a job is in its life."""
        return Status(self.jobs.status.item(job))


class DeclaredRates:
    """Steps per second as declared: steps over duration, scaled by GPU type, gang size and share of the GPU.

    A job's own ``speeds`` come before the speed of the GPU type. A gang of other than the declared size runs at a speed
    proportional to its GPUs. In a time slice a job has its share of the time; on a MIG slice that ``speeds`` do not
    name, the part of its time in which the GPU is busy grows as the GPU shrinks. Jobs that share a device at the same
    time slow each other down when their utilizations add up to more than one GPU. Durations and utilizations may be
    given apart from the table: what is true need not be what is declared.
    """

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        durations_s: Array | None = None,
        gpu_util_frac: Sequence[float] | None = None,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._durations_s = durations_s
        self._gpu_util_frac = gpu_util_frac

    def rates(
        self, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
    ) -> list[float]:
        """Steps per second of each job on its placement beside its residents."""
        if len(jobs) == 1:  # by far the most common
            return [self._rate(jobs[0], placements[0], residents[0])]
        return [self._rate(*each) for each in zip(jobs, placements, residents, strict=True)]

    def _rate(self, job: int, placement: Placement, neighbours: Sequence[int]) -> float:
        table, nodes = self._jobs, self._nodes
        durations = table.duration_s if self._durations_s is None else self._durations_s
        rate: float = table.steps.item(job) / durations.item(job)
        speeds = nodes.type_speed
        if own := table.speeds.item(job):
            rate *= self._own_speed(table.speed_tables[own], placement)
        elif len(speeds) == 1:
            rate *= speeds[0]
        else:
            rate *= min([speeds[nodes.type_of[grant.node]] for grant in placement.grants])
        shape = table.shape_by_row[job]
        gpus = placement.gpus
        if gpus != shape.gpus:
            rate *= gpus / shape.gpus
        if placement.sharing is Sharing.EXCLUSIVE:
            return rate
        if placement.sharing is Sharing.SHARED:
            load = sum(self._utilization(each) for each in (job, *neighbours))
            return rate / max(1.0, load)
        if placement.sharing is Sharing.MIG and own and self._slice(placement) in table.speed_tables[own]:
            return rate
        share = min(1.0, placement.milli / shape.milli)
        if placement.sharing is Sharing.MIG:  # Amdahl's law: only the time in which the GPU is busy grows on a slice
            busy = min(1.0, self._utilization(job) * WHOLE_GPU_MILLI / shape.milli)
            return rate / (1.0 - busy + busy / share)
        return rate * share

    def _own_speed(self, told: Mapping[str, float], placement: Placement) -> float:
        """How fast a job is where it is placed, by what is told of it; a gang is as fast as its slowest GPU."""
        if placement.sharing is Sharing.MIG and (name := self._slice(placement)) in told:
            return told[name]
        nodes = self._nodes
        types = {nodes.type_of[grant.node] for grant in placement.grants}
        return min([told.get(nodes.types[code], nodes.type_speed[code]) for code in types])

    def _slice(self, placement: Placement) -> str:
        """What speeds call the slice of a placement."""
        return slice_name(self._nodes.types[self._nodes.type_of[placement.grants[0].node]], placement.milli)

    def _utilization(self, job: int) -> float:
        told = self._gpu_util_frac
        known: float = self._jobs.gpu_util_frac.item(job) if told is None else told[job]
        return known if known == known else self._jobs.shape_of(job).milli / WHOLE_GPU_MILLI
