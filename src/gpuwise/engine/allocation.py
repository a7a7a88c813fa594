"""How jobs get GPUs and lose them: what every command does to the state, and what events do in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import (
    Migrate,
    Placement,
    Provision,
    Rearrange,
    Release,
    Repartition,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from gpuwise.core.errors import GpuwiseError, OverAllocationError
from gpuwise.core.job.life_cycle import LIFE_CYCLE, Status
from gpuwise.core.job.needs import EXCLUSIVE
from gpuwise.core.rates import DeclaredRates, believed, steps_made
from gpuwise.core.units import WHOLE_GPU_MILLI

# Plain numbers: the path of one event runs hundreds of thousands of times.
PENDING, STARTING, RUNNING = int(Status.PENDING), int(Status.STARTING), int(Status.RUNNING)
SUSPENDING, SUSPENDED = int(Status.SUSPENDING), int(Status.SUSPENDED)
SUCCEEDED, FAILED, CANCELLED = int(Status.SUCCEEDED), int(Status.FAILED), int(Status.CANCELLED)
_MAY_FOLLOW = [frozenset(int(after) for after in LIFE_CYCLE[before]) for before in Status]


class LifeCycleError(GpuwiseError):
    """An event or command that does not fit where its job is in its life."""


def become(state: ClusterState, job: int, status: int) -> int:
    """Changes a job's status and returns the one before."""
    column = state.jobs.status
    before: int = column.item(job)
    if status not in _MAY_FOLLOW[before]:
        raise LifeCycleError(
            f"job {state.jobs.ids[job]!r} is {Status(before).name} and cannot become {Status(status).name}"
        )
    column[job] = status
    if before == SUSPENDING:
        state.leaving.pop(job, None)
    return before


def _place(state: ClusterState, job: int, placement: Placement) -> None:
    jobs = state.jobs
    state.capacity.take(placement, jobs.shape_by_row[job])
    state.placed[job] = placement
    state.placed_jobs.add(job)
    jobs.placed_s[job] = state.now_s
    jobs.placements[job] = jobs.placements.item(job) + 1
    jobs.held_gpus[job] = placement.gpus * placement.milli / WHOLE_GPU_MILLI
    if placement.sharing is not EXCLUSIVE:
        state.residents.add(job, placement)
        refresh_rates(state, state.residents.neighbours(job, placement))


def leave(state: ClusterState, job: int, before: int, at_s: float) -> None:
    """Frees a job's GPUs; they were in use until ``at_s``, which may be long before that was observed."""
    placement = state.placed.pop(job, None)
    if placement is None:
        return
    state.placed_jobs.remove(job)
    jobs = state.jobs
    state.capacity.give(placement, jobs.shape_by_row[job])
    placed_s = jobs.placed_s.item(job)
    held_s = at_s - placed_s if at_s > placed_s else 0.0
    held_gpu_s = held_s * jobs.held_gpus.item(job)
    jobs.held_s[job] = jobs.held_s.item(job) + held_s
    jobs.attained_gpu_s[job] = jobs.attained_gpu_s.item(job) + held_gpu_s
    if before == STARTING:  # it left before its first step
        jobs.overhead_gpu_s[job] += held_gpu_s
    jobs.held_gpus[job] = 0.0
    if placement.sharing is not EXCLUSIVE:
        neighbours = state.residents.neighbours(job, placement)
        state.residents.remove(job, placement)
        refresh_rates(state, neighbours)


def requeue(state: ClusterState, job: int, status: int, steps: float, at_s: float) -> None:
    """Takes a job off its GPUs, if it has any, and puts it in the queue with the steps it kept."""
    before = become(state, job, status)
    leave(state, job, before, at_s)
    jobs = state.jobs
    jobs.steps_done[job] = jobs.saved_steps[job] = steps
    jobs.rate[job] = 0.0
    jobs.over[job] = jobs.placements.item(job)
    jobs.resumed[job] = 0
    if not jobs.held.item(job) and job not in state.backing_off:
        state.waiting.add(job)


def reshape(state: ClusterState, job: int, **changes: Any) -> None:
    """Changes the shape of a job wherever it is; jobs wait in a lane of their shape."""
    queued = job in state.waiting
    if queued:
        state.waiting.remove(job)
    state.jobs.reshape(job, **changes)
    if queued:
        state.waiting.add(job)


# -- believed rates ----------------------------------------------------------------------------------------------------


def refresh_rates(state: ClusterState, jobs: tuple[int, ...]) -> None:
    """Asks the rate model again about jobs whose neighbours changed."""
    running = [job for job in jobs if state.jobs.status.item(job) == RUNNING]
    placements = [state.placed[job] for job in running]
    residents = [state.residents.neighbours(*each) for each in zip(running, placements, strict=True)]
    for job, rate in zip(running, _believed(state, running, placements, residents), strict=True):
        count_steps(state, job)
        state.jobs.rate[job] = rate


def believed_alone(state: ClusterState, job: int, placement: Placement) -> float:
    """The rate of one job alone on its devices."""
    try:
        rate = state.believed_alone(job, placement)
        if 0.0 <= rate < math.inf:
            return rate
    except Exception:  # see `core.rates.believed`
        pass
    return _believed(state, (job,), (placement,), ((),))[0]


def _believed(
    state: ClusterState, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
) -> Sequence[float]:
    """Rates as the beliefs have them; as declared where they fail, since a forecast must not take the engine down."""
    rates = believed(state.beliefs, jobs, placements, residents)
    if not any(map(math.isnan, rates)):
        return rates
    declared = DeclaredRates(state.jobs, state.nodes).rates(jobs, placements, residents)
    return [known if math.isnan(rate) else rate for rate, known in zip(rates, declared, strict=True)]


def count_steps(state: ClusterState, job: int) -> None:
    """Counts the steps a running job is believed to have done since it last reported."""
    jobs = state.jobs
    if jobs.status.item(job) == RUNNING:
        jobs.steps_done[job] = steps_made(jobs, job, state.now_s)
        jobs.since_s[job] = state.now_s


# -- commands ----------------------------------------------------------------------------------------------------------


def _start(state: ClusterState, command: Start | Resume) -> None:
    job = command.job
    before = become(state, job, STARTING)
    try:
        _place(state, job, command.placement)
    except OverAllocationError:
        state.jobs.status[job] = before
        raise
    state.waiting.remove(job)
    if before == SUSPENDED:
        state.jobs.resumed[job] = 1
    first_start = state.jobs.first_start_s
    if (known := first_start.item(job)) != known:
        first_start[job] = state.now_s


def _suspend(state: ClusterState, command: Suspend) -> None:
    before = become(state, command.job, SUSPENDING)
    state.leaving[command.job] = state.placed[command.job]
    state.jobs.preemptions[command.job] += 1
    leave(state, command.job, before, state.now_s)


def _stop(state: ClusterState, command: Stop) -> None:
    """The job has already ended; only its processes have to go."""


def _move(state: ClusterState, command: Migrate | Resize) -> None:
    job = command.job
    count_steps(state, job)
    before = become(state, job, STARTING)
    leave(state, job, before, state.now_s)
    _place(state, job, command.placement)
    moves = state.jobs.migrations if isinstance(command, Migrate) else state.jobs.resizes
    moves[job] += 1


def _rearrange(state: ClusterState, command: Rearrange) -> None:
    for job, _ in command.moves:
        count_steps(state, job)
        before = become(state, job, STARTING)
        leave(state, job, before, state.now_s)
    for job, placement in command.moves:
        _place(state, job, placement)
        state.jobs.migrations[job] += 1


def _repartition(state: ClusterState, command: Repartition) -> None:
    state.capacity.repartition(command.node, command.device, command.slices)


def _provision_node(state: ClusterState, command: Provision) -> None:
    """The node counts once it has joined."""
    if state.nodes.row(command.node.name) is not None:
        raise LifeCycleError(f"node {command.node.name!r} is in the cluster already")
    state.requested[command.node.name] = command.node


def _release_node(state: ClusterState, command: Release) -> None:
    name = state.nodes.names[command.node]
    if any(command.node in placement.nodes for placement in (*state.placed.values(), *state.leaving.values())):
        raise LifeCycleError(f"node {name!r} has jobs on it, or that are leaving it, and cannot be released")
    state.capacity.set_up(command.node, False)
    state.released.add(name)


Handler = Callable[[ClusterState, Any], None]

COMMAND_HANDLERS: dict[type[Any], Handler] = {
    Start: _start, Resume: _start, Suspend: _suspend, Stop: _stop, Migrate: _move, Resize: _move,
    Rearrange: _rearrange, Repartition: _repartition, Provision: _provision_node, Release: _release_node,
}  # fmt: skip
