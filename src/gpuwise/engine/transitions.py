"""How each event and command changes the state: the whole of it, so that replaying a journal gives the same state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gpuwise.core.capacity import OverAllocationError
from gpuwise.core.commands import (
    Command,
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
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import (
    DeviceLost,
    DeviceRestored,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRevised,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeLost,
    NodeRestored,
    WokeUp,
)
from gpuwise.core.jobs import ENDED, LIFE_CYCLE, Status
from gpuwise.core.spec import Sharing
from gpuwise.core.state import ClusterState, DeclaredRates
from gpuwise.core.units import WHOLE_GPU_MILLI

# Plain numbers: the path of one event runs hundreds of thousands of times.
PENDING, STARTING, RUNNING = int(Status.PENDING), int(Status.STARTING), int(Status.RUNNING)
SUSPENDING, SUSPENDED = int(Status.SUSPENDING), int(Status.SUSPENDED)
SUCCEEDED, FAILED, CANCELLED = int(Status.SUCCEEDED), int(Status.FAILED), int(Status.CANCELLED)
_MAY_FOLLOW = [frozenset(int(after) for after in LIFE_CYCLE[before]) for before in Status]


class LifeCycleError(GpuwiseError):
    """An event or command that does not fit where its job is in its life."""


def _become(state: ClusterState, job: int, status: int) -> int:
    """Changes a job's status and returns the one before."""
    column = state.jobs.status
    before: int = column.item(job)
    if status not in _MAY_FOLLOW[before]:
        raise LifeCycleError(
            f"job {state.jobs.ids[job]!r} is {Status(before).name} and cannot become {Status(status).name}"
        )
    column[job] = status
    return before


# -- commands ----------------------------------------------------------------------------------------------------------


def _place(state: ClusterState, job: int, placement: Placement) -> None:
    jobs = state.jobs
    state.capacity.take(placement, jobs.shape_by_row[job])
    state.placed[job] = placement
    state.holders.add(job)
    jobs.placed_s[job] = state.now_s
    jobs.placements[job] += 1
    jobs.held_gpus[job] = placement.gpus * placement.milli / WHOLE_GPU_MILLI
    if placement.sharing is not Sharing.EXCLUSIVE:
        state.residents.add(job, placement)
        _rebelieve(state, state.residents.neighbours(job, placement))


def _leave(state: ClusterState, job: int, before: int) -> None:
    placement = state.placed.pop(job, None)
    if placement is None:
        return
    state.holders.remove(job)
    jobs = state.jobs
    state.capacity.give(placement, jobs.shape_by_row[job])
    placed_s = jobs.placed_s.item(job)
    held_s = state.now_s - placed_s
    held_gpu_s = held_s * jobs.held_gpus.item(job)
    jobs.held_s[job] = jobs.held_s.item(job) + held_s
    jobs.attained_gpu_s[job] = jobs.attained_gpu_s.item(job) + held_gpu_s
    if before == STARTING:  # it left before its first step
        jobs.overhead_gpu_s[job] += held_gpu_s
    jobs.held_gpus[job] = 0.0
    if placement.sharing is not Sharing.EXCLUSIVE:
        neighbours = state.residents.neighbours(job, placement)
        state.residents.remove(job, placement)
        _rebelieve(state, neighbours)


def _start(state: ClusterState, command: Start | Resume) -> None:
    job = command.job
    before = _become(state, job, STARTING)
    try:
        _place(state, job, command.placement)
    except OverAllocationError:
        state.jobs.status[job] = before
        raise
    state.waiting.remove(job)
    first_start = state.jobs.first_start_s
    if (known := first_start.item(job)) != known:
        first_start[job] = state.now_s


def _suspend(state: ClusterState, command: Suspend) -> None:
    before = _become(state, command.job, SUSPENDING)
    state.jobs.preemptions[command.job] += 1
    _leave(state, command.job, before)


def _stop(state: ClusterState, command: Stop) -> None:
    """The job has already ended; only its processes have to go."""


def _move(state: ClusterState, command: Migrate | Resize) -> None:
    job = command.job
    _settle(state, job)
    before = _become(state, job, STARTING)
    _leave(state, job, before)
    _place(state, job, command.placement)
    moves = state.jobs.migrations if isinstance(command, Migrate) else state.jobs.resizes
    moves[job] += 1


def _rearrange(state: ClusterState, command: Rearrange) -> None:
    for job, _ in command.moves:
        _settle(state, job)
        before = _become(state, job, STARTING)
        _leave(state, job, before)
    for job, placement in command.moves:
        _place(state, job, placement)
        state.jobs.migrations[job] += 1


def _repartition(state: ClusterState, command: Repartition) -> None:
    state.capacity.repartition(command.node, command.device, command.slices)


def _provision(state: ClusterState, command: Provision) -> None:
    """The node counts from the moment it has joined."""


def _release(state: ClusterState, command: Release) -> None:
    if any(command.node in placement.nodes for placement in state.placed.values()):
        raise LifeCycleError(f"node {state.nodes.names[command.node]!r} has jobs on it and cannot be released")
    state.capacity.set_up(command.node, False)


# -- events ------------------------------------------------------------------------------------------------------------


def _submitted(state: ClusterState, event: JobSubmitted) -> None:
    _become(state, event.job, PENDING)
    state.submitted = max(state.submitted, event.job + 1)
    state.waiting.add(event.job)


def _started(state: ClusterState, event: JobStarted) -> None:
    job = event.job
    _become(state, job, RUNNING)
    state.jobs.since_s[job] = event.at_s
    placement = state.placed[job]
    if event.at_s > (placed_s := state.jobs.placed_s.item(job)):
        state.jobs.overhead_gpu_s[job] += (event.at_s - placed_s) * state.jobs.held_gpus.item(job)
    if placement.sharing is Sharing.EXCLUSIVE:
        state.jobs.rate[job] = _believed(state, (job,), (placement,), ((),))[0]
    else:
        _rebelieve(state, (job, *state.residents.neighbours(job, placement)))


def _rebelieve(state: ClusterState, jobs: tuple[int, ...]) -> None:
    """Asks the beliefs again about jobs whose neighbours came or went."""
    running = [job for job in jobs if state.jobs.status.item(job) == RUNNING]
    placements = [state.placed[job] for job in running]
    residents = [state.residents.neighbours(*each) for each in zip(running, placements, strict=True)]
    for job, rate in zip(running, _believed(state, running, placements, residents), strict=True):
        _settle(state, job)
        state.jobs.rate[job] = rate


def _believed(
    state: ClusterState, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
) -> Sequence[float]:
    """Rates as the beliefs have them; as declared where they fail, since a forecast must not take the engine down."""
    try:
        rates = state.beliefs.rates(jobs, placements, residents)
    except Exception:
        rates = [math.nan] * len(jobs)
    if all(0.0 <= rate < math.inf for rate in rates):
        return rates
    declared = DeclaredRates(state.jobs, state.nodes).rates(jobs, placements, residents)
    return [rate if 0.0 <= rate < math.inf else known for rate, known in zip(rates, declared, strict=True)]


def _settle(state: ClusterState, job: int) -> None:
    """Counts the steps a running job is believed to have done since it was last heard of."""
    jobs = state.jobs
    if jobs.status.item(job) == RUNNING:
        believed = jobs.steps_done.item(job) + jobs.rate.item(job) * (state.now_s - jobs.since_s.item(job))
        jobs.steps_done[job] = min(believed, jobs.steps.item(job))
        jobs.since_s[job] = state.now_s


def _progressed(state: ClusterState, event: JobProgressed) -> None:
    if state.jobs.status.item(event.job) != RUNNING:
        raise LifeCycleError(f"job {state.jobs.ids[event.job]!r} reports progress but is not running")
    state.jobs.steps_done[event.job] = event.steps_done
    state.jobs.since_s[event.job] = event.at_s


def _queue_again(state: ClusterState, job: int, status: int, steps: float) -> None:
    before = _become(state, job, status)
    _leave(state, job, before)
    jobs = state.jobs
    jobs.steps_done[job] = jobs.saved_steps[job] = steps
    jobs.rate[job] = 0.0
    jobs.over[job] = jobs.placements.item(job)
    if not jobs.held.item(job):
        state.waiting.add(job)


def _suspended(state: ClusterState, event: JobSuspended) -> None:
    _queue_again(state, event.job, SUSPENDED, event.steps_done)


def _let_go(state: ClusterState, job: int) -> None:
    """A job that has ended is not held back any more."""
    if state.holds.pop(job, None) is not None:
        state.jobs.held[job] = 0


def _end(state: ClusterState, job: int, status: int) -> None:
    before = _become(state, job, status)
    _let_go(state, job)
    if job in state.waiting:
        state.waiting.remove(job)
    _leave(state, job, before)
    state.jobs.finish_s[job] = state.now_s


def _finished(state: ClusterState, event: JobFinished) -> None:
    job = event.job
    before = _become(state, job, SUCCEEDED)
    _let_go(state, job)
    _leave(state, job, before)
    jobs = state.jobs
    jobs.finish_s[job] = event.at_s
    jobs.steps_done[job] = jobs.steps.item(job)


def _failed(state: ClusterState, event: JobFailed) -> None:
    if event.will_retry:
        _queue_again(state, event.job, PENDING, event.steps_kept)
    else:
        _end(state, event.job, FAILED)


def _cancelled(state: ClusterState, event: JobCancelled) -> None:
    _end(state, event.job, CANCELLED)


def _require_alive(state: ClusterState, job: int) -> None:
    if (status := state.status(job)) is Status.DECLARED or status in ENDED:
        raise LifeCycleError(f"job {state.jobs.ids[job]!r} is {status.name}; nothing of it can be changed")


def _held(state: ClusterState, event: JobHeld) -> None:
    _require_alive(state, event.job)
    state.jobs.held[event.job] = 1
    state.holds[event.job] = event.cause
    if event.job in state.waiting:
        state.waiting.remove(event.job)


def _released(state: ClusterState, event: JobReleased) -> None:
    job = event.job
    _require_alive(state, job)
    state.jobs.held[job] = 0
    state.holds.pop(job, None)
    if state.jobs.status.item(job) in (PENDING, SUSPENDED) and job not in state.waiting:
        state.waiting.add(job)


def _revised(state: ClusterState, event: JobRevised) -> None:
    job, jobs = event.job, state.jobs
    _require_alive(state, job)
    if event.gpu_memory_bytes is not None and job in state.placed:
        raise LifeCycleError(f"job {jobs.ids[job]!r} holds GPUs; what memory it asks for cannot change now")
    for revised in (event.duration_s, event.steps):
        if revised is not None and not 0 < revised < math.inf:
            raise LifeCycleError(f"job {jobs.ids[job]!r}: {revised} is not a run time or a number of steps")
    jobs.keep_declared(job)
    lined_up = job in state.waiting
    if lined_up:
        state.waiting.remove(job)
    if event.gpu_memory_bytes is not None:
        jobs.revise_memory(job, event.gpu_memory_bytes)
    if event.gpu_util_frac is not None:
        _revise_utilization(state, job, event.gpu_util_frac)
    if event.duration_s is not None or event.steps is not None:
        _revise_pace(state, event)
    if lined_up:
        state.waiting.add(job)


def _revise_utilization(state: ClusterState, job: int, gpu_util_frac: float) -> None:
    """Another utilization: what is believed of the jobs beside it changes too."""
    state.jobs.gpu_util_frac[job] = gpu_util_frac
    if job in state.placed:
        _rebelieve(state, (job, *state.residents.neighbours(job, state.placed[job])))


def _revise_pace(state: ClusterState, event: JobRevised) -> None:
    """Another run time or number of steps; the part that is done stays the same."""
    job, jobs = event.job, state.jobs
    _settle(state, job)
    if event.steps is not None:
        scale = event.steps / jobs.steps.item(job)
        jobs.steps[job] = event.steps
        jobs.steps_done[job] *= scale
        jobs.saved_steps[job] *= scale
    if event.duration_s is not None:
        jobs.duration_s[job] = event.duration_s
    if jobs.status.item(job) == RUNNING:
        _rebelieve(state, (job,))


def _node_added(state: ClusterState, event: NodeAdded) -> None:
    state.capacity.add_node(state.nodes.add(event.node))


def _node_lost(state: ClusterState, event: NodeLost) -> None:
    thrown_off = [job for job, placement in state.placed.items() if event.node in placement.nodes]
    _interrupt(state, thrown_off, event.interrupted)
    state.capacity.set_up(event.node, False)


def _device_lost(state: ClusterState, event: DeviceLost) -> None:
    where = (event.node, event.device)
    thrown_off = [job for job, placement in state.placed.items() if where in placement.devices()]
    _interrupt(state, thrown_off, event.interrupted)
    state.capacity.set_device_up(event.node, event.device, False)


def _device_restored(state: ClusterState, event: DeviceRestored) -> None:
    state.capacity.set_device_up(event.node, event.device, True)


def _interrupt(state: ClusterState, thrown_off: list[int], interrupted: tuple[tuple[int, float], ...]) -> None:
    """Jobs that lose their place, and those named that were still saving there, wait again with what they kept."""
    kept = dict(interrupted)
    saving = [job for job in kept if state.jobs.status.item(job) == SUSPENDING]
    for job in (*thrown_off, *saving):
        _queue_again(state, job, PENDING, kept.get(job, state.jobs.saved_steps.item(job)))


def _node_restored(state: ClusterState, event: NodeRestored) -> None:
    state.capacity.set_up(event.node, True)


def _woke_up(state: ClusterState, event: WokeUp) -> None:
    """Time passes; nothing else."""


Handler = Callable[[ClusterState, Any], None]

HANDLERS: dict[type[Event] | type[Command], Handler] = {
    JobSubmitted: _submitted, JobStarted: _started, JobProgressed: _progressed, JobSuspended: _suspended,
    JobFinished: _finished, JobFailed: _failed, JobCancelled: _cancelled,
    JobHeld: _held, JobReleased: _released, JobRevised: _revised,
    NodeAdded: _node_added, NodeLost: _node_lost, NodeRestored: _node_restored,
    DeviceLost: _device_lost, DeviceRestored: _device_restored, WokeUp: _woke_up,
    Start: _start, Resume: _start, Suspend: _suspend, Stop: _stop, Migrate: _move, Resize: _move,
    Rearrange: _rearrange, Repartition: _repartition, Provision: _provision, Release: _release,
}  # fmt: skip
