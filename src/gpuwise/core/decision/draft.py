"""The draft: a scratch copy of the cluster on which a policy tries things before it decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.eligible import wrong_placement
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import Decision, Explain, Grant, MigSlice, Placement, Reason, Resume, Start
from gpuwise.core.decision.reasons import explain_room
from gpuwise.core.decision.scratch import Scratch
from gpuwise.core.decision.steps import (
    Cut,
    DraftError,
    Moved,
    Noted,
    Provisioned,
    Released,
    Swapped,
    commands_of,
    exchange,
    moves_of,
)
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.property import PropertyError
from gpuwise.core.job.shape import Shape, counts_for, task_counts, with_counts
from gpuwise.core.units import WHOLE_GPU_MILLI

_PENDING = int(Status.PENDING)


class Draft(Scratch):
    """Operations tried one after the other on a scratch copy; `seal` makes them a decision.

    Each can be undone: ``mark`` before, ``rollback`` after. Several on one job become one command, so a job may be
    started and then moved, or suspended and then started elsewhere; a job that is back where it was has no command. An
    operation for which there is no room raises `OverAllocationError`, or returns False where it looked for room itself,
    and changes nothing.
    """

    __slots__ = ()

    # -- what would be -------------------------------------------------------------------------------------------

    def started(self) -> list[int]:
        """The jobs this draft starts or resumes."""
        current = self._state.placed
        return [job for job, at in self._placed.items() if at is not None and job not in current]

    def waiting(self) -> Iterator[int]:
        """Waiting jobs in order, passing over those that ask for what was just found not to fit."""
        return self._state.waiting.walk(self.closed)

    def find(self, job: int, gpus: int | None = None) -> Placement | None:
        """Room for a job, or none."""
        shape = self._state.jobs.shape_by_row[job]
        return self._placer(self._shown(), shape, shape.gpus if gpus is None else gpus)

    def find_in(self, capacity: Capacity, job: int) -> Placement | None:
        """Room for a job in a capacity other than the draft's own."""
        shape = self._state.jobs.shape_by_row[job]
        return self._placer(capacity, shape, shape.gpus)

    def explain(self, job: int) -> Reason:
        """Why a job does not fit now."""
        return explain_room(self._state, job)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def start(self, job: int, placement: Placement | None = None) -> bool:
        """Starts or resumes a waiting job, where the placer finds room if no placement is given."""
        state = self._state
        if type(job) is not int:  # numpy's numbers are none that a journal can carry
            job = int(job)
        if job in self._placed or job in state.placed:
            self._repeated = True
            if self.placement(job) is not None:
                raise DraftError(f"job {self._id(job)} has GPUs already; move it, or suspend it first")
        elif job not in state.waiting:
            raise DraftError(f"job {self._id(job)} is not waiting and cannot be started")
        shape = state.jobs.shape_by_row[job]
        if placement is not None:
            self._check_allowed(job, placement)
            self._scratch().take(placement, shape)
        elif shape.id in self.closed:
            return False
        elif self._capacity is None and self._untried is None:  # the first, and mostly the only one
            placement = self._placer(self._for_placer, shape, shape.gpus)
            if placement is None:
                self.closed.add(shape.id)
                return False
            self._untried = (placement, shape)
        else:
            scratch = self._scratch()
            placement = self._placer(scratch, shape, shape.gpus)
            if placement is None:
                self.closed.add(shape.id)
                return False
            scratch.take(placement, shape)
        self._placed[job] = placement
        fresh = state.jobs.status.item(job) == _PENDING
        self._steps.append(Start(job, placement) if fresh else Resume(job, placement))
        if self._cuts:
            self._check_order()
        return True

    def suspend(self, job: int) -> None:
        """Suspends a job and frees its GPUs."""
        current = self._current(job)
        self._scratch().give(current, self._state.jobs.shape_by_row[job])
        self._log(Moved(int(job), current, None))

    def keep(self, job: int) -> bool:
        """Undoes a suspension, unless the GPUs were given to another job meanwhile."""
        last = next((move for step in reversed(self._steps) for move in moves_of(step) if move.job == job), None)
        if last is None or last.before is None or last.after is not None:
            raise DraftError(f"job {self._id(job)} is not suspended in this draft")
        if any(isinstance(step, Released) and step.node in last.before.nodes for step in self._steps):
            return False
        try:
            exchange(self._scratch(), self._state, {last.job: None}, {last.job: last.before}, self._placed)
            self._placed[last.job] = last.before
            self._repeated = True
            self._steps.append(Moved(last.job, None, last.before))
            self._check_order()
        except (OverAllocationError, DraftError):
            return False
        return True

    def move(self, job: int, placement: Placement) -> None:
        """Moves a job to another placement: a resize if the number of GPUs differs, else a migration."""
        current = self._current(job)
        self._check_allowed(job, placement)
        exchange(self._scratch(), self._state, {job: current}, {job: placement}, self._placed)
        self._log(Moved(int(job), current, placement))

    def resize(self, job: int, gpus: int) -> bool:
        """Gives a job another number of GPUs, its own among them, where the placer finds room."""
        shape = self._state.jobs.shape_by_row[job]
        if shape.roles:
            counts = counts_for(with_counts(shape, task_counts(self._current(job).tasks)), gpus)
            return counts is not None and self.resize_roles(job, counts)
        return shape.min_gpus <= gpus <= shape.max_gpus and self._resize(job, shape, gpus)

    def resize_roles(self, job: int, counts: Mapping[str, int]) -> bool:
        """Gives roles of a job other numbers of tasks, the rest as they are, where the placer finds room for all."""
        now = task_counts(self._current(job).tasks)
        if not self._state.jobs.shape_by_row[job].roles:
            raise DraftError(f"job {self._id(job)} has no roles; use resize(job, gpus)")
        try:
            shape = with_counts(self._state.jobs.shape_by_row[job], now | dict(counts))
        except PropertyError as error:
            raise DraftError(f"job {self._id(job)} cannot be resized: {error}") from error
        return self._resize(job, shape, shape.gpus)

    def _resize(self, job: int, wanted: Shape, gpus: int) -> bool:
        current, shape, scratch = self._current(job), self._state.jobs.shape_by_row[job], self._scratch()
        scratch.give(current, shape)
        try:
            found = self._placer(scratch, wanted, gpus)
        finally:
            scratch.retake(current, shape)
        if found is None:
            return False
        self.move(job, found)
        return True

    def swap(self, job: int, other: int) -> None:
        """Two jobs change places."""
        self.rearrange({job: self._current(other), other: self._current(job)})

    def rearrange(self, moves: Mapping[int, Placement]) -> None:
        """Moves several jobs at once; they may take each other's places."""
        moves = {int(job): placement for job, placement in moves.items()}
        before = {job: self._current(job) for job in moves}
        for job, placement in moves.items():
            self._check_allowed(job, placement)
        exchange(self._scratch(), self._state, before, moves, self._placed)
        self._log(Swapped(tuple(Moved(job, before[job], placement) for job, placement in moves.items())))

    def time_slice(
        self,
        job: int,
        quantum_s: float,
        devices: Iterable[tuple[int, int]] | None = None,
        share: float | None = None,
    ) -> None:
        """Lets a job take turns of ``quantum_s`` with others on its devices, or on other (node, device) pairs.

        It gets the ``share`` of their time that it asks for, or another. A job that waits is started there.
        """
        current = self.placement(job)
        if current is None and devices is None:
            raise DraftError(f"job {self._id(job)} has no GPUs; say which devices it shall share")
        milli = self._state.jobs.shape_by_row[job].milli if share is None else round(share * WHOLE_GPU_MILLI)
        if not (0 < milli <= WHOLE_GPU_MILLI and 0 <= quantum_s < float("inf")):
            raise DraftError(f"job {self._id(job)}: a share of {share} and turns of {quantum_s} s; not a time slice")
        grants = current.grants if devices is None and current is not None else _grants(devices or ())
        tasks = current.tasks if devices is None and current is not None else ()
        placement = Placement(grants, Sharing.TIME_SLICE, milli, quantum_s, tasks)
        if current is None:
            self.start(job, placement)
        else:
            self.move(job, placement)

    def note(self, column: str, job: int, value: float) -> None:
        """Writes to one of the policy's own columns when the decision is carried out."""
        self._steps.append(Noted(column, int(job), self._notes.get((column, job)), float(value)))
        self._notes[column, int(job)] = float(value)

    # -- devices and nodes ---------------------------------------------------------------------------------------

    def cut(self, node: int, device: int, slices: tuple[MigSlice, ...]) -> None:
        """Partitions an empty GPU into MIG slices; no slices makes it whole again."""
        scratch = self._scratch()
        before = scratch.layouts.get((node, device), ())
        scratch.repartition(node, device, slices)
        self._cuts += 1
        self._log(Cut(node, device, before, slices))

    def provision(self, node: NodeSpec) -> None:
        """Asks for a new node; it counts from the moment it has joined."""
        if self._state.nodes.row(node.name) is not None or node.name in self._state.requested:
            raise DraftError(f"node {node.name!r} is in the cluster already, or was asked for before")
        self._steps.append(Provisioned(node))

    def release(self, node: int) -> None:
        """Releases an empty node."""
        state, name = self._state, self.view.nodes.names[node]
        on_it = [*state.placed.values(), *state.leaving.values(), *self._placed.values()]
        if any(at is not None and node in at.nodes for at in on_it):
            raise DraftError(f"node {name!r} has jobs on it, or that are leaving it, and cannot be released")
        if not self.capacity.up[node]:
            raise DraftError(f"node {name!r} is not in service and cannot be released")
        self._scratch().set_up(node, False)
        self._steps.append(Released(node))

    def seal(self, wake_at: float | None = None, reasons: Explain | None = None) -> Decision:
        """The decision: what the operations come to, and why every other job waits."""
        steps = self._steps
        if len(steps) == 1 and type(steps[0]) is Start:  # by far the most common
            return Decision((steps[0],), wake_at, reasons or self.explain)
        commands = tuple(commands_of(steps, self._state, self._repeated)) if steps else ()
        notes = tuple((*where, value) for where, value in self._notes.items()) if self._notes else ()
        return Decision(commands, wake_at, reasons or self.explain, notes)

    def _check_allowed(self, job: int, placement: Placement) -> None:
        if wrong := wrong_placement(placement, self._state.jobs.shape_by_row[job], self._shown()):
            raise DraftError(f"job {self._id(job)}: {wrong}")

    def _current(self, job: int) -> Placement:
        current = self.placement(job)
        if current is None:
            raise DraftError(f"job {self._id(job)} has no GPUs")
        return current


def _grants(devices: Iterable[tuple[int, int]]) -> tuple[Grant, ...]:
    masks: dict[int, int] = {}
    for node, device in devices:
        masks[node] = masks.get(node, 0) | 1 << device
    return tuple(Grant(node, mask) for node, mask in masks.items())
