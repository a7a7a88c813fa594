"""GPUs that jobs share, for policies that pack: the jobs on each, what is left, and starting and moving jobs."""

from __future__ import annotations

import math

import numpy as np

from gpuwise.core.cluster.nodes import first
from gpuwise.core.commands import Explain, Grant, Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError, OverAllocationError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.rates import progresses
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI, remaining
from gpuwise.policies.beliefs import speed
from gpuwise.policies.gpu_types.gains import makes_no_progress
from gpuwise.policies.placing.eligible import idle_nodes

MOST_JOBS = 3
"""The maximum number of jobs on a GPU (Yeung et al., HotCloud'20)."""
_ROUNDING = 1e-9


def check_most_jobs(name: str, most_jobs: int) -> None:
    """Refuses a maximum number of jobs on a GPU that is not possible."""
    if not 1 <= most_jobs <= WHOLE_GPU_MILLI:
        raise GpuwiseError(f"policy {name!r}: most_jobs is {most_jobs}; it must be 1 to {WHOLE_GPU_MILLI}")


def may_share(shape: Shape) -> bool:
    """Whether a job is for one GPU that it may share; the tasks of a job with roles are left to the placer."""
    return shape.gpus == shape.max_gpus == 1 and Sharing.SHARED in shape.sharing and not shape.roles


def utilization(view: ClusterView, job: int) -> float:
    """The part of a GPU's time that a job is believed to use; all of what it asks for where that is unknown."""
    known = float(view.jobs.gpu_util_frac.item(job))
    return known if 0 <= known < math.inf else view.shape(job).milli / WHOLE_GPU_MILLI


class SharedGpus:
    """The GPUs that jobs share, in the order they were opened, as a draft leaves them.

    Each job gets the same share of its GPU, or more where it asks for more, so that no more than ``most_jobs`` fit.
    """

    def __init__(self, draft: Draft, most_jobs: int) -> None:
        self._draft = draft
        self._milli = WHOLE_GPU_MILLI // most_jobs
        self.jobs: list[list[int]] = []
        """The jobs on each GPU."""
        self.where: list[tuple[int, int]] = []
        self.at: dict[tuple[int, int], int] = {}
        """The number of each GPU, by node and device."""
        placed = draft.view.placed
        for job, placement in placed.items():
            if placement.sharing is Sharing.SHARED:
                for device in placement.devices():
                    self.jobs[self._number(device)].append(job)
        nodes, devices = np.array(self.where, dtype="i8").reshape(-1, 2).T
        capacity = draft.capacity
        self.load = np.array([sum(utilization(draft.view, job) for job in here) for here in self.jobs], dtype="f8")
        """Utilizations of the jobs on each GPU, added up."""
        self._memory: Array = capacity.open_memory[nodes, devices]
        takes_more = (capacity.open_sharing[nodes, devices] != 0) & np.asarray(capacity.up, dtype=bool)[nodes]
        self._milli_left: Array = np.where(takes_more, capacity.open_milli[nodes, devices], 0).astype("i8")
        self._type: Array = draft.view.nodes.gpu_type[nodes]
        self._least: float | None = None

    def _number(self, device: tuple[int, int]) -> int:
        known = self.at.get(device)
        if known is None:
            known = self.at[device] = len(self.where)
            self.where.append(device)
            self.jobs.append([])
        return known

    def with_room(self, job: int) -> Array:
        """Which GPUs have a share and memory left for a job: an array of booleans."""
        shape = self._draft.view.shape(job)
        room: Array = (self._milli_left >= self._share(shape)) & (self._memory >= shape.gpu_bytes)
        types = self._draft.capacity.types_for(shape)
        if len(types) < len(self._draft.view.nodes.types):
            room &= np.isin(self._type, types)
        if shape.require or shape.avoid:
            allowed = self._draft.capacity.allowed(shape)
            room &= np.array([bool(allowed >> node & 1) for node, _ in self.where], dtype=bool)
        return room

    def least_load(self) -> float:
        """The least load of a GPU with a share left: enough to rule out most jobs that do not fit."""
        if self._least is None:
            self._least = float(self.load[self._milli_left >= self._milli].min(initial=math.inf))
        return self._least

    def first_fit(self, job: int, most_load: float) -> list[int]:
        """The GPUs, in order, on which a job's utilization fits beside that of the others, and its memory too."""
        load = utilization(self._draft.view, job)
        if self.least_load() + load > most_load + _ROUNDING:
            return []
        found: list[int] = np.flatnonzero(self.with_room(job) & (self.load + load <= most_load + _ROUNDING)).tolist()
        return found

    def placement(self, job: int, gpu: int) -> Placement:
        """A job's placement on a GPU."""
        node, device = self.where[gpu]
        return self._on(job, node, device)

    def type_of(self, gpu: int) -> int:
        """The type of a GPU."""
        return self._draft.view.nodes.type_of[self.where[gpu][0]]

    def _on(self, job: int, node: int, device: int) -> Placement:
        return Placement((Grant(node, 1 << device),), Sharing.SHARED, self._share(self._draft.view.shape(job)))

    def _share(self, shape: Shape) -> int:
        return self._milli if shape.whole else max(self._milli, shape.milli)

    def join(self, job: int, gpu: int) -> bool:
        """Starts a job beside others, unless it makes no progress there or the node lacks CPUs or memory."""
        placement = self.placement(job, gpu)
        if not progresses(speed(self._draft.view, job, placement)):
            return False
        try:
            self._draft.start(job, placement)
        except OverAllocationError:
            return False
        self._add(job, gpu)
        return True

    def move(self, job: int, gpu: int) -> bool:
        """Moves a job to a GPU with others, unless it makes no progress there or the node lacks CPUs or memory."""
        now, placement = self._draft.placement(job), self.placement(job, gpu)
        assert now is not None, f"job {job} has no GPUs"
        if now.tasks or not progresses(speed(self._draft.view, job, placement)):
            return False
        try:
            self._draft.move(job, placement)
        except OverAllocationError:
            return False
        self._remove(job, self.at[now.devices()[0]])
        self._add(job, gpu)
        return True

    def open(self, job: int) -> bool:
        """Starts a job on an idle GPU that others may join."""
        device = self._idle(job)
        if device is not None:
            self._draft.start(job, self._on(job, *device))
            self._add(job, self._opened(device))
        return device is not None

    def move_to_idle(self, job: int) -> bool:
        """Moves a job that shares a GPU to an idle one, unless it has other tasks, which would not follow."""
        device, now = self._idle(job), self._draft.placement(job)
        assert now is not None, f"job {job} has no GPUs"
        if now.tasks:
            return False
        if device is not None:
            self._draft.move(job, self._on(job, *device))
            self._remove(job, self.at[now.devices()[0]])
            self._add(job, self._opened(device))
        return device is not None

    def _idle(self, job: int) -> tuple[int, int] | None:
        """The first idle GPU that a job may have, of a type on which it is not believed to make no progress."""
        capacity, view = self._draft.capacity, self._draft.view
        nodes = idle_nodes(capacity, view.shape(job))
        while nodes:
            node = first(nodes)
            device = (node, first(capacity.usable(node, view.shape(job))))
            if progresses(speed(view, job, self._on(job, *device))):
                return device
            nodes &= ~capacity.at_least(view.nodes.type_of[node], 1)
        return None

    def _opened(self, device: tuple[int, int]) -> int:
        """The number of a GPU that was idle."""
        gpu, capacity = self._number(device), self._draft.capacity
        if gpu == len(self.load):
            self.load, self._memory = np.append(self.load, 0.0), np.append(self._memory, 0)
            self._milli_left, self._type = np.append(self._milli_left, 0), np.append(self._type, 0)
        self.load[gpu], self._memory[gpu] = 0.0, capacity.memory_left(*device)
        self._milli_left[gpu], self._type[gpu] = WHOLE_GPU_MILLI, capacity.nodes.type_of[device[0]]
        return gpu

    def _add(self, job: int, gpu: int) -> None:
        view = self._draft.view
        self._least = None
        self.jobs[gpu].append(job)
        self.load[gpu] += utilization(view, job)
        self._memory[gpu] = remaining(self._memory.item(gpu), view.shape(job).gpu_bytes)
        self._milli_left[gpu] -= self._share(view.shape(job))

    def _remove(self, job: int, gpu: int) -> None:
        """A job has left; a GPU without jobs is idle, and not one to join."""
        view = self._draft.view
        self._least = None
        self.jobs[gpu].remove(job)
        self.load[gpu] -= utilization(view, job)
        self._memory[gpu] = remaining(self._memory.item(gpu), -view.shape(job).gpu_bytes)
        self._milli_left[gpu] += self._share(view.shape(job))
        if not self.jobs[gpu]:
            self._milli_left[gpu] = 0


def reasons(draft: Draft, code: Explain) -> Explain:
    """Reasons under a policy that packs: why a job that may share does not, where no GPU is idle."""

    def explain(job: int) -> Reason:
        reason = draft.explain(job)
        if reason.code not in (Why.NEVER_FITS, Why.NO_SUCH_NODE) and makes_no_progress(draft.view, job):
            return Reason(Why.NO_SPEED)
        if reason.code not in (Why.NO_ROOM, Why.NO_SHARE) or not may_share(draft.view.shape(job)):
            return reason
        own, capacity = code(job), draft.view.capacity
        idle = sum(capacity.idle_total[kind] for kind in capacity.types_for(draft.view.shape(job)))
        return Reason(own.code, {"idle": idle, **reason.numbers, **own.numbers})

    return explain
