"""What a policy sees and the scratch copy it tries placements on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gpuwise.core.capacity import Capacity, OverAllocationError
from gpuwise.core.commands import (
    Command,
    Decision,
    Explain,
    Migrate,
    Placement,
    Rearrange,
    Repartition,
    Resize,
    Resume,
    Start,
    Suspend,
)
from gpuwise.core.jobs import JobTable, Shape, Status
from gpuwise.core.nodes import NodeTable
from gpuwise.core.protocols import Placer, RateModel
from gpuwise.core.queue import WaitingQueue
from gpuwise.core.reasons import Reason, explain_room
from gpuwise.core.state import ClusterState
from gpuwise.core.tables import Array, read_only


class ClusterView:
    """The cluster as a policy sees it: read-only."""

    __slots__ = ("_state", "capacity", "jobs", "nodes", "placed", "placer", "rates", "waiting")

    _state: ClusterState
    waiting: WaitingQueue
    """The jobs that wait, in the policy's order."""
    placed: Mapping[int, Placement]
    """Where each job that holds GPUs holds them."""
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

    def __init__(self, state: ClusterState, placer: Placer) -> None:
        seen = {
            "_state": state, "waiting": state.waiting, "placed": state.placed, "capacity": state.capacity,
            "nodes": state.nodes, "jobs": state.jobs, "rates": state.beliefs, "placer": placer,
        }  # fmt: skip
        for name, value in seen.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a view is read-only; {name} cannot be set")

    @property
    def now_s(self) -> float:
        """The time."""
        return self._state.now_s

    def column(self, name: str) -> Array:
        """A column of the job table, one entry for each job submitted so far, read-only."""
        state = self._state
        return read_only(getattr(state.jobs, name)[: state.submitted])

    def shape(self, job: int) -> Shape:
        """What a job asks for."""
        return self._state.jobs.shape_by_row[job]

    def job_id(self, job: int) -> str:
        """The id its user knows a job by."""
        return self._state.jobs.ids[job]

    def status(self, job: int) -> Status:
        """Where a job is in its life."""
        return self._state.status(job)

    def remaining_s(self, job: int) -> float:
        """Believed time a job still needs: at its rate while it runs, as declared while it waits."""
        jobs = self.jobs
        left = float(jobs.steps.item(job) - jobs.steps_done.item(job))
        rate = float(jobs.rate.item(job))
        if jobs.status.item(job) == Status.RUNNING and rate > 0:
            return max(0.0, left / rate - (self.now_s - float(jobs.since_s.item(job))))
        return float(left * jobs.duration_s.item(job) / jobs.steps.item(job))

    def believed_s(self, job: int, placement: Placement) -> float:
        """Believed time a job would still need on a placement, alone there."""
        rate = self.rates.rates((job,), (placement,), ((),))[0]
        return self.work_left_s(job) / self._declared_s(job) * (float(self.jobs.steps.item(job)) / rate)

    def _declared_s(self, job: int) -> float:
        return float(self.jobs.duration_s.item(job))

    def attained_gpu_s(self, job: int) -> float:
        """GPU time a job has held so far."""
        jobs = self.jobs
        attained: float = jobs.attained_gpu_s.item(job)
        if job in self.placed:
            attained += (self.now_s - jobs.placed_s.item(job)) * jobs.held_gpus.item(job)
        return attained

    def holders(self) -> Array:
        """The jobs that hold GPUs, in no order, as an array for the methods below."""
        return self._state.holders.array()

    def attained_of(self, holders: Array) -> Array:
        """GPU time held so far, of many jobs that hold GPUs."""
        jobs = self.jobs
        attained: Array = jobs.attained_gpu_s[holders] + (self.now_s - jobs.placed_s[holders]) * jobs.held_gpus[holders]
        return attained

    def work_left_s(self, job: int) -> float:
        """Time a job would still need alone on what it asks for: one measure for those who wait and who run."""
        jobs = self.jobs
        left = jobs.steps.item(job) - jobs.steps_done.item(job)
        if jobs.status.item(job) == Status.RUNNING:
            left = max(0.0, left - jobs.rate.item(job) * (self.now_s - jobs.since_s.item(job)))
        return float(left * jobs.duration_s.item(job) / jobs.steps.item(job))

    def work_left_of(self, holders: Array) -> Array:
        """`work_left_s` of many jobs that hold GPUs."""
        jobs = self.jobs
        steps = jobs.steps[holders]
        left = steps - jobs.steps_done[holders]
        running = jobs.status[holders] == Status.RUNNING
        left -= np.where(running, jobs.rate[holders] * (self.now_s - jobs.since_s[holders]), 0.0)
        seconds: Array = left.clip(min=0.0) * jobs.duration_s[holders] / steps
        return seconds

    def draft(self, placer: Placer | None = None) -> Draft:
        """A scratch copy to try placements on."""
        return Draft(self, self._state, placer or self.placer)


class Draft:
    """Commands tried one after the other on a scratch copy; `seal` makes them a decision."""

    __slots__ = (
        "_capacity",
        "_placed",
        "_placer",
        "_state",
        "_suspended_from",
        "_untried",
        "closed",
        "commands",
        "view",
    )

    def __init__(self, view: ClusterView, state: ClusterState, placer: Placer) -> None:
        self.view = view
        self._state = state
        self._placer = placer
        self._capacity: Capacity | None = None
        self._untried: tuple[Placement, Shape] | None = None
        """A first start that the scratch copy, which is made when it is first needed, does not show yet."""
        self._placed: dict[int, Placement | None] = {}
        self._suspended_from: dict[int, Placement] = {}
        self.commands: list[Command] = []
        self.closed: set[int] = set()
        """Shapes that were found not to fit since the last time anything was freed."""

    @property
    def capacity(self) -> Capacity:
        """What is free if the commands so far are carried out."""
        if self._capacity is None and self._untried is None:
            return self._state.capacity
        return self._scratch()

    def placement(self, job: int) -> Placement | None:
        """Where a job would be."""
        return self._placed[job] if job in self._placed else self._state.placed.get(job)

    def started(self) -> list[int]:
        """The jobs this draft starts or resumes."""
        return [command.job for command in self.commands if isinstance(command, (Start, Resume))]

    def waiting(self) -> Iterator[int]:
        """Waiting jobs in order, passing over those that ask for what was just found not to fit."""
        return self._state.waiting.walk(self.closed)

    def find(self, job: int, gpus: int | None = None) -> Placement | None:
        """Room for a job, or none."""
        shape = self._state.jobs.shape_by_row[job]
        return self._placer(self.capacity, shape, shape.gpus if gpus is None else gpus)

    def find_in(self, capacity: Capacity, job: int) -> Placement | None:
        """Room for a job in a capacity other than the draft's own."""
        shape = self._state.jobs.shape_by_row[job]
        return self._placer(capacity, shape, shape.gpus)

    def start(self, job: int, placement: Placement | None = None) -> bool:
        """Starts or resumes a waiting job, where the placer finds room if no placement is given."""
        state = self._state
        shape = state.jobs.shape_by_row[job]
        given = placement is not None
        if placement is None:
            if shape.id in self.closed:
                return False
            placement = self._placer(self.capacity, shape, shape.gpus)
            if placement is None:
                self.closed.add(shape.id)
                return False
        if given or self.commands or self._capacity is not None:
            self._scratch().take(placement, shape)
        else:
            self._untried = (placement, shape)
        self._placed[job] = placement
        fresh = state.jobs.status.item(job) == Status.PENDING
        self.commands.append(Start(job, placement) if fresh else Resume(job, placement))
        return True

    def suspend(self, job: int) -> None:
        """Takes a job's GPUs away."""
        held = self.placement(job)
        assert held is not None, f"job {job} holds no GPUs"
        self._scratch().give(held, self._state.jobs.shape_by_row[job])
        self._placed[job] = None
        self._suspended_from[job] = held
        self.commands.append(Suspend(job))
        self.closed.clear()

    def keep(self, job: int) -> bool:
        """Takes a suspension back, if nobody was given the GPUs meanwhile."""
        held = self._suspended_from[job]
        try:
            self._scratch().take(held, self._state.jobs.shape_by_row[job])
        except OverAllocationError:
            return False
        self.commands.remove(Suspend(job))
        self._placed[job] = held
        return True

    def move(self, job: int, placement: Placement) -> None:
        """Moves a job to another placement: a resize if the number of GPUs differs, else a migration."""
        held = self.placement(job)
        assert held is not None, f"job {job} holds no GPUs"
        shape = self._state.jobs.shape_by_row[job]
        scratch = self._scratch()
        scratch.give(held, shape)
        try:
            scratch.take(placement, shape)
        except Exception:
            scratch.take(held, shape)
            raise
        self._placed[job] = placement
        self.commands.append((Migrate if held.gpus == placement.gpus else Resize)(job, placement))
        self.closed.clear()

    def rearrange(self, moves: Mapping[int, Placement]) -> None:
        """Moves several jobs at once; they may take each other's places."""
        scratch, shape_of = self._scratch(), self._state.jobs.shape_of
        trial = scratch.fork()
        for job in moves:
            held = self.placement(job)
            assert held is not None, f"job {job} holds no GPUs"
            trial.give(held, shape_of(job))
        for job, placement in moves.items():
            trial.take(placement, shape_of(job))
        self._capacity = trial
        self._placed.update(moves)
        self.commands.append(Rearrange(tuple(moves.items())))
        self.closed.clear()

    def repartition(self, command: Repartition) -> None:
        """Cuts an empty GPU into slices."""
        self._scratch().repartition(command.node, command.device, command.slices)
        self.commands.append(command)
        self.closed.clear()

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.commands)

    def rollback(self, mark: int) -> None:
        """Undoes every start and suspension since a mark."""
        scratch, jobs = self._scratch(), self._state.jobs
        while len(self.commands) > mark:
            command = self.commands.pop()
            assert isinstance(command, (Start, Resume, Suspend)), "moves and partitions cannot be rolled back"
            shape = jobs.shape_by_row[command.job]
            if isinstance(command, Suspend):
                held = self._suspended_from[command.job]
                scratch.take(held, shape)
                self._placed[command.job] = held
            else:
                scratch.give(command.placement, shape)
                del self._placed[command.job]
        self.closed.clear()

    def seal(self, wake_at: float | None = None, reasons: Explain | None = None) -> Decision:
        """The decision: these commands, and why everybody else waits."""
        return Decision(tuple(self.commands), wake_at, reasons or self.explain)

    def explain(self, job: int) -> Reason:
        """Why a job does not fit now."""
        return explain_room(self._state, job)

    def _scratch(self) -> Capacity:
        if self._capacity is None:
            self._capacity = self._state.capacity.fork()
            if self._untried is not None:
                self._capacity.take(*self._untried)
                self._untried = None
        return self._capacity
