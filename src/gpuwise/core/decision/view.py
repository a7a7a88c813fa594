"""What a policy sees of the cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.queue import WaitingQueue
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.readonly import ReadOnlyCapacity, ReadOnlyQueue, read_only_table
from gpuwise.core.errors import ReadOnlyError, UnknownNameError
from gpuwise.core.guards import ReadOnlyDict
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.shape import Shape, task_counts
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import Placer, RateModel
from gpuwise.core.rates import believed, steps_left, time_left_s
from gpuwise.core.tables import Array, read_only


class ClusterView:
    """The cluster as a policy sees it, always as it is now; whatever is reached through it cannot be written to."""

    __slots__ = (
        "_columns", "_for_placer", "_state", "capacity", "jobs", "nodes", "placed", "placer", "rates", "waiting",
    )  # fmt: skip

    _state: ClusterState
    _columns: Mapping[str, float]
    _for_placer: Capacity
    """What the placer is shown of what is free."""
    waiting: WaitingQueue
    """The jobs that wait, in the policy's order."""
    placed: Mapping[int, Placement]
    """Where each job that has GPUs is placed."""
    capacity: Capacity
    """What is free."""
    nodes: NodeTable
    """What every node has."""
    jobs: JobTable
    """Everything known of every job; read a cell with ``view.jobs.priority.item(job)``."""
    rates: RateModel
    """How fast jobs are believed to run, where and beside whom."""
    placer: Placer
    """What finds room in drafts."""

    def __init__(self, state: ClusterState, placer: Placer, columns: Mapping[str, float] | None = None) -> None:
        nodes = read_only_table(state.nodes)
        capacity = ReadOnlyCapacity(state.capacity, nodes)
        seen = {
            "_state": state, "waiting": ReadOnlyQueue(state.waiting), "placed": ReadOnlyDict(state.placed),
            "capacity": capacity, "nodes": nodes, "jobs": read_only_table(state.jobs),
            "rates": state.beliefs, "placer": placer, "_columns": dict(columns or {}),
            "_for_placer": state.capacity if getattr(placer, "only_reads", False) else capacity,
        }  # fmt: skip
        for name, value in seen.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise ReadOnlyError(f"{name} was set")

    @property
    def now_s(self) -> float:
        """The time."""
        return self._state.now_s

    def column(self, name: str) -> Array:
        """A column of the job table, one entry for each job submitted so far, read-only."""
        state = self._state
        return read_only(getattr(state.jobs, name)[: state.submitted])

    def own(self, column: str) -> Array:
        """A column of the policy's own, one entry for each job submitted so far; `Draft.note` writes to it."""
        values = np.full(self._state.submitted, self._default(column))
        for job, value in self._state.notes.get(column, {}).items():
            values[job] = value
        return read_only(values)

    def own_value(self, column: str, job: int) -> float:
        """The value of a job in a column of the policy's own."""
        return self._state.notes.get(column, {}).get(job, self._default(column))

    def _default(self, column: str) -> float:
        if column not in self._columns:
            raise UnknownNameError("column of this policy", column, self._columns, "the policy's own `columns`")
        return self._columns[column]

    def shape(self, job: int) -> Shape:
        """What a job asks for."""
        return self._state.jobs.shape_by_row[job]

    def job_id(self, job: int) -> str:
        """The id its user knows a job by."""
        return self._state.jobs.ids[job]

    def status(self, job: int) -> Status:
        """Where a job is in its life."""
        return self._state.status(job)

    def time_left_s(self, job: int, placement: Placement | None = None) -> float:
        """Believed time a job still needs; infinite where it makes no progress, or that is not known.

        At its rate while it runs, as declared while it waits; or on a placement, alone there.
        """
        jobs = self.jobs
        left = steps_left(jobs, job, self.now_s)
        if placement is not None:
            return time_left_s(left, believed(self.rates, (job,), (placement,), ((),))[0])
        if jobs.status.item(job) == Status.RUNNING:
            return time_left_s(left, jobs.rate.item(job))
        return self.work_left_s(job)

    def attained_gpu_s(self, job: int) -> float:
        """GPU time that a job has had so far."""
        jobs = self.jobs
        attained: float = jobs.attained_gpu_s.item(job)
        if job in self.placed:
            attained += (self.now_s - jobs.placed_s.item(job)) * jobs.held_gpus.item(job)
        return attained

    def placed_jobs(self) -> Array:
        """The jobs that have GPUs, in no order, as an array for the methods below."""
        return self._state.placed_jobs.array()

    def attained_of(self, placed: Array) -> Array:
        """`attained_gpu_s` of many jobs that have GPUs."""
        jobs = self.jobs
        attained: Array = jobs.attained_gpu_s[placed] + (self.now_s - jobs.placed_s[placed]) * jobs.held_gpus[placed]
        return attained

    def work_left_s(self, job: int) -> float:
        """Time a job would still need alone on what it asks for: one measure for jobs that wait and jobs that run."""
        jobs = self.jobs
        return steps_left(jobs, job, self.now_s) * float(jobs.duration_s.item(job)) / float(jobs.steps.item(job))

    def work_left_of(self, placed: Array) -> Array:
        """`work_left_s` of many jobs that have GPUs."""
        jobs = self.jobs
        steps = jobs.steps[placed]
        left = steps - jobs.steps_done[placed]
        running = jobs.status[placed] == Status.RUNNING
        left -= np.where(running, jobs.rate[placed] * (self.now_s - jobs.since_s[placed]), 0.0)
        seconds: Array = left.clip(min=0.0) * jobs.duration_s[placed] / steps
        return seconds

    def tasks(self, job: int) -> dict[str, int]:
        """How many tasks of each role a job has now; empty for one without roles, or without a place."""
        at = self.placed.get(job)
        return {} if at is None else task_counts(at.tasks)

    def requested_nodes(self) -> tuple[NodeSpec, ...]:
        """Nodes that were asked for and have not joined yet."""
        return tuple(self._state.requested.values())

    def residents(self, node: int, device: int) -> tuple[int, ...]:
        """The jobs on a device, lowest first."""
        where = (node, device)
        return tuple(sorted(job for job, at in self.placed.items() if where in at.devices()))

    def neighbours(self, job: int, placement: Placement | None = None) -> tuple[int, ...]:
        """The jobs that share devices with a job, and disturb it, where it is or on another placement."""
        at = placement or self.placed.get(job)
        return () if at is None else self._state.residents.neighbours(job, at)

    def forecast_rate(self, job: int) -> float:
        """Steps per second that a job is believed to make where it is; 0 for one without GPUs."""
        at = self.placed.get(job)
        return 0.0 if at is None else believed(self.rates, (job,), (at,), (self.neighbours(job),))[0]

    def observed_rate(self, job: int) -> float:
        """Steps per second between the last two reports of a job from where it is; NaN where there are none."""
        jobs = self.jobs
        here = job in self.placed and jobs.reported_s.item(job) >= jobs.placed_s.item(job)
        return float(jobs.reported_rate.item(job)) if here else math.nan

    def draft(self, placer: Placer | None = None) -> Draft:
        """A scratch copy to try placements on."""
        return Draft(self, self._state, placer or self.placer)
