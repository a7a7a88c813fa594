"""How each event and command changes the state: the whole of it, so that replaying a journal gives the same state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gpuwise.core.cluster.capacity import OverAllocationError
from gpuwise.core.cluster.state import ClusterState
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
    BackOffEnded,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobHeld,
    JobNoted,
    JobProgressed,
    JobReleased,
    JobRevised,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    StartRefused,
    WokeUp,
)
from gpuwise.core.job.needs import EXCLUSIVE, Forecast
from gpuwise.core.job.table import ENDED, LIFE_CYCLE, Status
from gpuwise.core.observations import UNCOUNTED, Cause
from gpuwise.core.rates import DeclaredRates, believed, steps_made
from gpuwise.core.units import WHOLE_GPU_MILLI

# Plain numbers: the path of one event runs hundreds of thousands of times.
PENDING, STARTING, RUNNING = int(Status.PENDING), int(Status.STARTING), int(Status.RUNNING)
SUSPENDING, SUSPENDED = int(Status.SUSPENDING), int(Status.SUSPENDED)
SUCCEEDED, FAILED, CANCELLED = int(Status.SUCCEEDED), int(Status.FAILED), int(Status.CANCELLED)
AVOID_S = 60.0
"""How long after its back-off a job is not tried where it was refused: it must not wait for ever for another node."""
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
    if before == SUSPENDING:
        state.leaving.pop(job, None)
    return before


# -- commands ----------------------------------------------------------------------------------------------------------


def _place(state: ClusterState, job: int, placement: Placement) -> None:
    jobs = state.jobs
    state.capacity.take(placement, jobs.shape_by_row[job])
    state.placed[job] = placement
    state.holders.add(job)
    jobs.placed_s[job] = state.now_s
    jobs.placements[job] = jobs.placements.item(job) + 1
    jobs.held_gpus[job] = placement.gpus * placement.milli / WHOLE_GPU_MILLI
    if placement.sharing is not EXCLUSIVE:
        state.residents.add(job, placement)
        refresh_rates(state, state.residents.neighbours(job, placement))


def _leave(state: ClusterState, job: int, before: int, at_s: float) -> None:
    """Takes a job's GPUs back; they were in use until ``at_s``, which may be long before anybody could see it."""
    placement = state.placed.pop(job, None)
    if placement is None:
        return
    state.holders.remove(job)
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


def _start(state: ClusterState, command: Start | Resume) -> None:
    job = command.job
    before = _become(state, job, STARTING)
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
    before = _become(state, command.job, SUSPENDING)
    state.leaving[command.job] = state.placed[command.job]
    state.jobs.preemptions[command.job] += 1
    _leave(state, command.job, before, state.now_s)


def _stop(state: ClusterState, command: Stop) -> None:
    """The job has already ended; only its processes have to go."""


def _move(state: ClusterState, command: Migrate | Resize) -> None:
    job = command.job
    _settle(state, job)
    before = _become(state, job, STARTING)
    _leave(state, job, before, state.now_s)
    _place(state, job, command.placement)
    moves = state.jobs.migrations if isinstance(command, Migrate) else state.jobs.resizes
    moves[job] += 1


def _rearrange(state: ClusterState, command: Rearrange) -> None:
    for job, _ in command.moves:
        _settle(state, job)
        before = _become(state, job, STARTING)
        _leave(state, job, before, state.now_s)
    for job, placement in command.moves:
        _place(state, job, placement)
        state.jobs.migrations[job] += 1


def _repartition(state: ClusterState, command: Repartition) -> None:
    state.capacity.repartition(command.node, command.device, command.slices)


def _provision(state: ClusterState, command: Provision) -> None:
    """The node counts from the moment it has joined."""
    if state.nodes.row(command.node.name) is not None:
        raise LifeCycleError(f"node {command.node.name!r} is in the cluster already")
    state.requested[command.node.name] = command.node


def _release(state: ClusterState, command: Release) -> None:
    name = state.nodes.names[command.node]
    if any(command.node in placement.nodes for placement in (*state.placed.values(), *state.leaving.values())):
        raise LifeCycleError(f"node {name!r} has jobs on it, or that are leaving it, and cannot be released")
    state.capacity.set_up(command.node, False)
    state.released.add(name)


# -- events ------------------------------------------------------------------------------------------------------------


def _submitted(state: ClusterState, event: JobSubmitted) -> None:
    job = event.job
    _become(state, job, PENDING)
    if job >= state.submitted:
        state.submitted = job + 1
    state.waiting.add(job)


def _started(state: ClusterState, event: JobStarted) -> None:
    job = event.job
    _become(state, job, RUNNING)
    state.jobs.since_s[job] = event.at_s
    if (attempt := state.jobs.placements.item(job)) > 1:
        state.jobs.over[job] = attempt - 1
        if state.jobs.refusals.item(job):
            state.jobs.refusals[job] = 0
            _avoid(state, job, ())
    placement = state.placed[job]
    if event.at_s > (placed_s := state.jobs.placed_s.item(job)):
        state.jobs.overhead_gpu_s[job] += (event.at_s - placed_s) * state.jobs.held_gpus.item(job)
    if placement.sharing is EXCLUSIVE:
        state.jobs.rate[job] = _believed_alone(state, job, placement)
    else:
        refresh_rates(state, (job, *state.residents.neighbours(job, placement)))


def refresh_rates(state: ClusterState, jobs: tuple[int, ...]) -> None:
    """Asks the beliefs again about jobs whose neighbours came or went."""
    running = [job for job in jobs if state.jobs.status.item(job) == RUNNING]
    placements = [state.placed[job] for job in running]
    residents = [state.residents.neighbours(*each) for each in zip(running, placements, strict=True)]
    for job, rate in zip(running, _believed(state, running, placements, residents), strict=True):
        _settle(state, job)
        state.jobs.rate[job] = rate


def _believed_alone(state: ClusterState, job: int, placement: Placement) -> float:
    """The rate of one job that shares its devices with nobody."""
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


def _settle(state: ClusterState, job: int) -> None:
    """Counts the steps a running job is believed to have done since it was last heard of."""
    jobs = state.jobs
    if jobs.status.item(job) == RUNNING:
        jobs.steps_done[job] = steps_made(jobs, job, state.now_s)
        jobs.since_s[job] = state.now_s


def _progressed(state: ClusterState, event: JobProgressed) -> None:
    if state.jobs.status.item(event.job) != RUNNING:
        raise LifeCycleError(f"job {state.jobs.ids[event.job]!r} reports progress but is not running")
    _observe(state, event)
    state.jobs.steps_done[event.job] = event.steps_done
    state.jobs.since_s[event.job] = event.at_s


def _observe(state: ClusterState, event: JobProgressed) -> None:
    """The rate between the last two reports of a job from where it is."""
    job, jobs = event.job, state.jobs
    since_s = jobs.reported_s.item(job)
    here = since_s >= jobs.placed_s.item(job) and event.at_s > since_s
    done = event.steps_done - jobs.reported_steps.item(job)
    jobs.reported_rate[job] = done / (event.at_s - since_s) if here and done >= 0 else math.nan
    jobs.reported_s[job], jobs.reported_steps[job] = event.at_s, event.steps_done


def queue_again(state: ClusterState, job: int, status: int, steps: float, at_s: float) -> None:
    """Takes a job off its GPUs, if it has any, and puts it in line with the steps it kept."""
    before = _become(state, job, status)
    _leave(state, job, before, at_s)
    jobs = state.jobs
    jobs.steps_done[job] = jobs.saved_steps[job] = steps
    jobs.rate[job] = 0.0
    jobs.over[job] = jobs.placements.item(job)
    jobs.resumed[job] = 0
    if not jobs.held.item(job) and job not in state.backing_off:
        state.waiting.add(job)


def _suspended(state: ClusterState, event: JobSuspended) -> None:
    queue_again(state, event.job, SUSPENDED, event.steps_done, event.at_s)


def _let_go(state: ClusterState, job: int) -> None:
    """A job that has ended is not held back any more."""
    if state.holds and state.holds.pop(job, None) is not None:
        state.jobs.held[job] = 0
    if state.backing_off or state.avoiding:
        state.backing_off.pop(job, None)
        state.avoiding.pop(job, None)


def _end(state: ClusterState, job: int, status: int, at_s: float) -> None:
    before = _become(state, job, status)
    _let_go(state, job)
    state.waiting.discard(job)
    _leave(state, job, before, at_s)
    state.jobs.finish_s[job] = at_s


def _finished(state: ClusterState, event: JobFinished) -> None:
    job = event.job
    before = _become(state, job, SUCCEEDED)
    _let_go(state, job)
    if before in (PENDING, SUSPENDED):
        state.waiting.discard(job)
    _leave(state, job, before, event.at_s)
    jobs = state.jobs
    jobs.finish_s[job] = event.at_s
    jobs.steps_done[job] = jobs.steps.item(job)


def _failed(state: ClusterState, event: JobFailed) -> None:
    if event.will_retry:
        queue_again(state, event.job, PENDING, event.steps_kept, event.at_s)
    else:
        _end(state, event.job, FAILED, event.at_s)
    if event.kind == Cause.OUT_OF_MEMORY:
        state.jobs.out_of_memory[event.job] += 1
    elif event.kind not in UNCOUNTED:
        state.jobs.failures[event.job] += 1


def _start_refused(state: ClusterState, event: StartRefused) -> None:
    """Nothing has failed: the job waits again, out of line for as long as it backs off."""
    job, jobs = event.job, state.jobs
    state.backing_off[job] = event.until_s
    status = SUSPENDED if jobs.resumed.item(job) else PENDING
    queue_again(state, job, status, jobs.saved_steps.item(job), event.at_s)
    jobs.refusals[job] += 1
    if event.avoid:
        _avoid(state, job, tuple(dict.fromkeys((*jobs.shape_by_row[job].avoid, *event.avoid))))
        state.avoiding[job] = event.until_s + AVOID_S


def _avoid(state: ClusterState, job: int, nodes: tuple[str, ...]) -> None:
    """Sets the nodes on which a job is not tried for now."""
    state.avoiding.pop(job, None)
    if state.jobs.shape_by_row[job].avoid != nodes:
        reshape(state, job, avoid=nodes)


def reshape(state: ClusterState, job: int, **changes: Any) -> None:
    """Changes the shape of a job wherever it is; jobs wait in a lane of their shape."""
    lined_up = job in state.waiting
    if lined_up:
        state.waiting.remove(job)
    state.jobs.reshape(job, **changes)
    if lined_up:
        state.waiting.add(job)


def _back_off_ended(state: ClusterState, event: BackOffEnded) -> None:
    job = event.job
    if state.backing_off.pop(job, None) is None:
        _avoid(state, job, ())
    elif not state.jobs.held.item(job):
        state.waiting.add(job)


def _cancelled(state: ClusterState, event: JobCancelled) -> None:
    _end(state, event.job, CANCELLED, state.now_s)


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
    waits = state.jobs.status.item(job) in (PENDING, SUSPENDED) and job not in state.backing_off
    if waits and job not in state.waiting:
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
        jobs.revise_memory(job, Forecast(event.gpu_memory_bytes, source=event.source))
    if event.gpu_util_frac is not None:
        _revise_utilization(state, job, Forecast(event.gpu_util_frac, source=event.source))
    if event.duration_s is not None or event.steps is not None:
        _revise_pace(state, event)
    if lined_up:
        state.waiting.add(job)


def _revise_utilization(state: ClusterState, job: int, gpu_util: Forecast) -> None:
    """Another utilization: what is believed of the jobs beside it changes too."""
    state.jobs.revise_util(job, gpu_util)
    if job in state.placed:
        refresh_rates(state, (job, *state.residents.neighbours(job, state.placed[job])))


def _revise_pace(state: ClusterState, event: JobRevised) -> None:
    """Another run time or number of steps; the part that is done stays the same."""
    job, jobs = event.job, state.jobs
    _settle(state, job)
    if event.steps is not None:
        scale = event.steps / jobs.steps.item(job)
        jobs.steps[job] = event.steps
        jobs.steps_known[job] = 1
        jobs.steps_done[job] *= scale
        jobs.saved_steps[job] *= scale
    if event.duration_s is not None:
        low, high = (math.nan if end is None else end for end in (event.duration_low_s, event.duration_high_s))
        jobs.revise_duration(job, Forecast(event.duration_s, low, high, event.source))
    if jobs.status.item(job) == RUNNING:
        refresh_rates(state, (job,))


def _noted(state: ClusterState, event: JobNoted) -> None:
    state.notes.setdefault(event.column, {})[event.job] = event.value


def _woke_up(state: ClusterState, event: WokeUp) -> None:
    """Time passes; nothing else."""


Handler = Callable[[ClusterState, Any], None]

JOB_HANDLERS: dict[type[Event] | type[Command], Handler] = {
    JobSubmitted: _submitted, JobStarted: _started, JobProgressed: _progressed, JobSuspended: _suspended,
    JobFinished: _finished, JobFailed: _failed, StartRefused: _start_refused, BackOffEnded: _back_off_ended,
    JobCancelled: _cancelled, JobHeld: _held, JobReleased: _released, JobRevised: _revised, JobNoted: _noted,
    WokeUp: _woke_up,
    Start: _start, Resume: _start, Suspend: _suspend, Stop: _stop, Migrate: _move, Resize: _move,
    Rearrange: _rearrange, Repartition: _repartition, Provision: _provision, Release: _release,
}  # fmt: skip
