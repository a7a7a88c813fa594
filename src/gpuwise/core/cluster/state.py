"""The state of the cluster: which jobs wait, which run where, what is free. Only the engine changes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.cluster.queue import WaitingQueue
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.commands import Placement
from gpuwise.core.job.life_cycle import STATUS_BY_CODE, Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import ParkedMemory
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import MakeRates, RateModel
from gpuwise.core.rates import DeclaredRates, alone_rates
from gpuwise.core.tables import Array, read_only


class Residents:
    """Which jobs share a device; jobs alone on whole GPUs are not listed."""

    def __init__(self) -> None:
        self._on: dict[tuple[int, int], list[int]] = {}

    def add(self, job: int, placement: Placement) -> None:
        """Puts a job on the devices of a shared placement."""
        for device in placement.devices():
            self._on.setdefault(device, []).append(job)

    def remove(self, job: int, placement: Placement) -> None:
        """Takes a job off them."""
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


class PlacedJobs:
    """The jobs that have GPUs as an array, in no order, for passes over all of them."""

    def __init__(self) -> None:
        self._jobs: Array = np.zeros(64, dtype="i8")
        self._at: dict[int, int] = {}

    def add(self, job: int) -> None:
        """Adds a job that got GPUs."""
        count = len(self._at)
        if count == len(self._jobs):
            self._jobs = np.concatenate([self._jobs, np.zeros_like(self._jobs)])
        self._jobs[count] = job
        self._at[job] = count

    def remove(self, job: int) -> None:
        """Removes a job that left its GPUs; the last one takes its place."""
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
        """Where each job that has GPUs is placed, in the order of starts."""
        self.leaving: dict[int, Placement] = {}
        """Where each job that is saving its state before it leaves was placed."""
        self.placed_jobs = PlacedJobs()
        self.residents = Residents()
        self.on_hold: dict[int, str] = {}
        """Jobs that may not be placed until they are released, and why not."""
        self.backing_off: dict[int, float] = {}
        """Jobs whose start was refused, and when each may be tried again."""
        self.avoiding: dict[int, float] = {}
        """Jobs that are not tried where they were refused, and until when."""
        self.parked: dict[str, ParkedMemory] = {}
        """By node, the memory that parked jobs keep there: job, device and bytes."""
        self.requested: dict[str, NodeSpec] = {}
        """Nodes that were requested and have not joined yet, by name."""
        self.released: set[str] = set()
        """Nodes that are not needed any more and have not left yet."""
        self.notes: dict[str, dict[int, float]] = {}
        """What a policy wrote to columns of its own, by column and job."""
        self.submitted = 0
        """Jobs submitted so far."""
        self.waiting = WaitingQueue(self.jobs, self._submitted_at)
        self.beliefs: RateModel = (beliefs or DeclaredRates)(self.jobs, self.nodes)
        self.believed_alone = alone_rates(self.beliefs)
        """The believed rate of a job alone on its devices."""

    def parked_by(self, job: int) -> ParkedMemory:
        """The memory that a job keeps where it is parked: node, device and bytes."""
        uid = self.jobs.ids[job]
        return tuple((node, at[1], at[2]) for node, kept in self.parked.items() for at in kept if at[0] == uid)

    def _submitted_at(self, job: int) -> float:
        at: float = self.jobs.submit_s.item(job)
        return at

    def status(self, job: int) -> Status:
        """Where a job is in its life."""
        code: int = self.jobs.status.item(job)
        return STATUS_BY_CODE[code]
