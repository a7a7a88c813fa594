"""What a draft did, step by step, and how that becomes one command per job.

A step knows what was before it, so that it can be undone. Where no job was touched twice, each step is one command, in
the order they were tried. Else what several steps come to is one command, and the order is one in which the engine can
carry them out: as tried if that works; otherwise suspensions first, then moves and repartitions as room comes free,
with those that wait for each other in one `Rearrange`, then starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import (
    Command,
    Migrate,
    MigSlice,
    Placement,
    Provision,
    Rearrange,
    Release,
    Repartition,
    Resize,
    Resume,
    Start,
    Suspend,
)
from gpuwise.core.errors import GpuwiseError, OverAllocationError
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.shape import task_counts


class DraftError(GpuwiseError):
    """An operation that cannot be done to its job, or that no single decision can carry out with those before it."""


class Moved(NamedTuple):
    """A job has another placement; None is no GPUs."""

    job: int
    before: Placement | None
    after: Placement | None


class Swapped(NamedTuple):
    """Several jobs have other placements at once."""

    moves: tuple[Moved, ...]


class Cut(NamedTuple):
    """A GPU is repartitioned."""

    node: int
    device: int
    before: tuple[MigSlice, ...]
    after: tuple[MigSlice, ...]


class Provisioned(NamedTuple):
    """A node was asked for."""

    node: NodeSpec


class Released(NamedTuple):
    """A node is out of service."""

    node: int


class Noted(NamedTuple):
    """Something was written to a column of the policy's own."""

    column: str
    job: int
    before: float | None
    value: float


Step = Start | Resume | Moved | Swapped | Cut | Provisioned | Released | Noted
"""A start is the command itself: there is nothing before it, and most decisions are one start."""
_PENDING = int(Status.PENDING)
C = TypeVar("C", bound=Command)


def commands_of(steps: Sequence[Step], state: ClusterState, repeated: bool) -> list[Command]:
    """The commands that lead where the steps have led, one per job, in an order the engine can carry out.

    ``repeated`` is whether there may be a job with more than one step.
    """
    if repeated:
        moved = [move.job for step in steps for move in moves_of(step)]
        if len(set(moved)) < len(moved):
            merged = _merged(steps, state)
            return merged if _Trial(state).carries_out(merged) else _reordered(merged, state)
    commands: list[Command] = []
    for step in steps:
        if isinstance(step, (Start, Resume)):
            commands.append(step)
        elif isinstance(step, Moved) and step.after is None:
            commands.append(Suspend(step.job))
        else:
            commands += _commands(step, _real(moves_of(step)), state)
    return commands


def moves_of(step: Step) -> tuple[Moved, ...]:
    """Who moved in a step."""
    if isinstance(step, (Start, Resume)):
        return (Moved(step.job, None, step.placement),)
    if isinstance(step, Moved):
        return (step,)
    return step.moves if isinstance(step, Swapped) else ()


def _commands(step: Step, moves: Sequence[Moved], state: ClusterState) -> list[Command]:
    """The commands of one step, of which ``moves`` are left."""
    if isinstance(step, (Start, Resume, Moved)):
        return [_command(move, state) for move in moves]
    if isinstance(step, Swapped):
        together = [move for move in moves if move.before is not None and move.after is not None]
        if len(together) > 1 or (together and len(step.moves) == 1):
            alone = [move for move in moves if move not in together]
            swap = Rearrange(tuple((move.job, move.after) for move in together if move.after is not None))
            return [swap, *(_command(move, state) for move in alone)]
        return [_command(move, state) for move in moves]
    if isinstance(step, Cut):
        return [Repartition(step.node, step.device, step.after)]
    if isinstance(step, Provisioned):
        return [Provision(step.node)]
    return [Release(step.node)] if isinstance(step, Released) else []


def _command(move: Moved, state: ClusterState) -> Command:
    job, before, after = move
    if after is None:
        return Suspend(job)
    if before is None:
        return begin(job, after, state)
    same = before.gpus == after.gpus and task_counts(before.tasks) == task_counts(after.tasks)
    return Migrate(job, after) if same else Resize(job, after)


def begin(job: int, placement: Placement, state: ClusterState) -> Start | Resume:
    """The command that gives a waiting job GPUs."""
    fresh = state.jobs.status.item(job) == _PENDING
    return Start(job, placement) if fresh else Resume(job, placement)


def _merged(steps: Sequence[Step], state: ClusterState) -> list[Command]:
    """One command per job, where its last step was; none for a job that is back where it was."""
    last = {move.job: number for number, step in enumerate(steps) for move in moves_of(step)}
    commands: list[Command] = []
    for number, step in enumerate(steps):
        ended = [move.job for move in moves_of(step) if last[move.job] == number]
        after = {move.job: move.after for move in moves_of(step)}
        moves = [Moved(job, state.placed.get(job), after[job]) for job in ended]
        commands += _commands(step, _real(moves), state)
    return commands


def _real(moves: Iterable[Moved]) -> list[Moved]:
    """The moves that lead to another place."""
    return [move for move in moves if move.before != move.after]


def _reordered(commands: Sequence[Command], state: ClusterState) -> list[Command]:
    """The same commands in an order that works, with moves that wait for each other in one."""
    trial = _Trial(state)
    done: list[Command] = [*_of(Provision, commands), *_of(Suspend, commands)]
    trial.carries_out(done)
    left: list[Command] = [*_single_moves(commands, state), *_last_cuts(commands, state)]
    while left:
        ready = [command for command in left if trial.attempt(command)]
        left = [command for command in left if command not in ready]
        if not ready:
            together = _together(left)
            if len(together.moves) == 0 or not trial.attempt(together):
                raise DraftError(_stuck(left, state))
            moved = {job for job, _ in together.moves}
            left = [command for command in left if getattr(command, "job", -1) not in moved]
            ready = [together]
        done += ready
    starts = [command for command in commands if isinstance(command, (Start, Resume))]
    return [*done, *starts, *_of(Release, commands)]


def _of(kind: type[C], commands: Iterable[Command]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


def _single_moves(commands: Iterable[Command], state: ClusterState) -> list[Command]:
    found: list[Command] = []
    for command in commands:
        if isinstance(command, Rearrange):
            found += [_command(Moved(job, state.placed[job], at), state) for job, at in command.moves]
        elif isinstance(command, (Migrate, Resize)):
            found.append(command)
    return found


def _last_cuts(commands: Iterable[Command], state: ClusterState) -> list[Repartition]:
    last = {(command.node, command.device): command for command in _of(Repartition, commands)}
    layouts = state.capacity.layouts
    return [command for where, command in last.items() if command.slices != layouts.get(where, ())]


def _together(left: Iterable[Command]) -> Rearrange:
    """The moves that do not go to a GPU that is still to be repartitioned."""
    left = list(left)
    uncut = {(command.node, command.device) for command in _of(Repartition, left)}
    moves = [command for command in left if isinstance(command, (Migrate, Resize))]
    return Rearrange(tuple((each.job, each.placement) for each in moves if uncut.isdisjoint(each.placement.devices())))


def _stuck(left: Iterable[Command], state: ClusterState) -> str:
    uncut = {(command.node, command.device) for command in _of(Repartition, left)}
    jobs = [repr(state.jobs.ids[job]) for job, at in state.placed.items() if not uncut.isdisjoint(at.devices())]
    return (
        f"jobs {', '.join(jobs)} would have to leave a GPU so that it can be repartitioned, and get their next place "
        "only then; suspend them now and start them in the next decision"
    )


class _Trial:
    """Commands tried one after the other, as the engine will carry them out."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._capacity = state.capacity.fork()
        self._moved: dict[int, Placement | None] = {}

    def carries_out(self, commands: Iterable[Command]) -> bool:
        """Whether all of them can be carried out in this order."""
        return all(self.attempt(command) for command in commands)

    def attempt(self, command: Command) -> bool:
        """Carries a command out if there is room; else nothing is changed."""
        if isinstance(command, Rearrange):
            return self._move(dict(command.moves))
        if isinstance(command, Suspend):
            return self._move({command.job: None})
        if isinstance(command, (Start, Resume, Migrate, Resize)):
            return self._move({command.job: command.placement})
        if isinstance(command, Repartition):
            return self._cut(command)
        if isinstance(command, Release):
            return self._is_empty(command.node)
        return True

    def _move(self, moves: Mapping[int, Placement | None]) -> bool:
        before = {job: self._placement(job) for job in moves}
        try:
            exchange(self._capacity, self._state, before, moves, self._moved)
        except OverAllocationError:
            return False
        self._moved |= moves
        return True

    def _placement(self, job: int) -> Placement | None:
        return self._moved[job] if job in self._moved else self._state.placed.get(job)

    def _cut(self, command: Repartition) -> bool:
        try:
            self._capacity.repartition(command.node, command.device, command.slices)
        except OverAllocationError:
            return False
        return True

    def _is_empty(self, node: int) -> bool:
        placed = {**self._state.placed, **self._moved}
        return not any(at is not None and node in at.nodes for at in placed.values())


def exchange(
    capacity: Capacity,
    state: ClusterState,
    before: Mapping[int, Placement | None],
    after: Mapping[int, Placement | None],
    moved: Mapping[int, Placement | None],
) -> None:
    """Frees what jobs have and takes what they are to have; if that fails, nothing is changed.

    ``moved`` are the jobs that have other placements already than the state says.
    """
    shapes = state.jobs.shape_by_row
    taken: list[int] = []
    for job, current in before.items():
        if current is not None:
            capacity.give(current, shapes[job])
    try:
        for job, wanted in after.items():
            if wanted is not None:
                if wanted == state.placed.get(job):  # also on a node that is drained, it still has it
                    newcomers = nodes_with_newcomers(state, {**moved, **after})
                    capacity.retake_from(state.capacity, wanted, shapes[job], newcomers)
                else:
                    capacity.take(wanted, shapes[job])
                taken.append(job)
    except Exception:
        for job in taken:
            capacity.give(cast(Placement, after[job]), shapes[job])
        for job, current in before.items():
            if current is not None:
                capacity.retake(current, shapes[job])
        raise


def nodes_with_newcomers(state: ClusterState, moved: Mapping[int, Placement | None]) -> set[int]:
    """The nodes on which jobs are, among those that moved, that were not there before."""
    new = [at for job, at in moved.items() if at is not None and at != state.placed.get(job)]
    return {node for at in new for node in at.nodes}
