"""How each event about a job changes the state."""

from __future__ import annotations

import math
from typing import Any

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.events import (
    BackOffEnded,
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
from gpuwise.core.job.life_cycle import ENDED, Status
from gpuwise.core.job.needs import EXCLUSIVE, Forecast
from gpuwise.core.observations import UNCOUNTED, Cause
from gpuwise.engine.allocation import (
    CANCELLED,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    Handler,
    LifeCycleError,
    become,
    believed_alone,
    count_steps,
    leave,
    refresh_rates,
    requeue,
    reshape,
)

AVOID_S = 60.0
"""How long after its back-off a job is not tried where it was refused: it must not wait for ever for another node."""


def _submitted(state: ClusterState, event: JobSubmitted) -> None:
    job = event.job
    become(state, job, PENDING)
    if job >= state.submitted:
        state.submitted = job + 1
    state.waiting.add(job)


def _started(state: ClusterState, event: JobStarted) -> None:
    job = event.job
    become(state, job, RUNNING)
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
        state.jobs.rate[job] = believed_alone(state, job, placement)
    else:
        refresh_rates(state, (job, *state.residents.neighbours(job, placement)))


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


def _suspended(state: ClusterState, event: JobSuspended) -> None:
    requeue(state, event.job, SUSPENDED, event.steps_done, event.at_s)


def _let_go(state: ClusterState, job: int) -> None:
    """A job that has ended is neither on hold nor backing off."""
    if state.on_hold and state.on_hold.pop(job, None) is not None:
        state.jobs.held[job] = 0
    if state.backing_off or state.avoiding:
        state.backing_off.pop(job, None)
        state.avoiding.pop(job, None)


def _end(state: ClusterState, job: int, status: int, at_s: float) -> None:
    before = become(state, job, status)
    _let_go(state, job)
    state.waiting.discard(job)
    leave(state, job, before, at_s)
    state.jobs.finish_s[job] = at_s


def _finished(state: ClusterState, event: JobFinished) -> None:
    job = event.job
    before = become(state, job, SUCCEEDED)
    _let_go(state, job)
    if before in (PENDING, SUSPENDED):
        state.waiting.discard(job)
    leave(state, job, before, event.at_s)
    jobs = state.jobs
    jobs.finish_s[job] = event.at_s
    jobs.steps_done[job] = jobs.steps.item(job)


def _failed(state: ClusterState, event: JobFailed) -> None:
    if event.will_retry:
        requeue(state, event.job, PENDING, event.steps_kept, event.at_s)
    else:
        _end(state, event.job, FAILED, event.at_s)
    if event.kind == Cause.OUT_OF_MEMORY:
        state.jobs.out_of_memory[event.job] += 1
    elif event.kind not in UNCOUNTED:
        state.jobs.failures[event.job] += 1


def _start_refused(state: ClusterState, event: StartRefused) -> None:
    """Nothing has failed: the job waits again, outside the queue while it backs off."""
    job, jobs = event.job, state.jobs
    state.backing_off[job] = event.until_s
    status = SUSPENDED if jobs.resumed.item(job) else PENDING
    requeue(state, job, status, jobs.saved_steps.item(job), event.at_s)
    jobs.refusals[job] += 1
    if event.avoid:
        _avoid(state, job, tuple(dict.fromkeys((*jobs.shape_by_row[job].avoid, *event.avoid))))
        state.avoiding[job] = event.until_s + AVOID_S


def _avoid(state: ClusterState, job: int, nodes: tuple[str, ...]) -> None:
    """Sets the nodes on which a job is not tried until its back-off ends."""
    state.avoiding.pop(job, None)
    if state.jobs.shape_by_row[job].avoid != nodes:
        reshape(state, job, avoid=nodes)


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


def _put_on_hold(state: ClusterState, event: JobHeld) -> None:
    _require_alive(state, event.job)
    state.jobs.held[event.job] = 1
    state.on_hold[event.job] = event.cause
    if event.job in state.waiting:
        state.waiting.remove(event.job)


def _released_from_hold(state: ClusterState, event: JobReleased) -> None:
    job = event.job
    _require_alive(state, job)
    state.jobs.held[job] = 0
    state.on_hold.pop(job, None)
    waits = state.jobs.status.item(job) in (PENDING, SUSPENDED) and job not in state.backing_off
    if waits and job not in state.waiting:
        state.waiting.add(job)


def _revised(state: ClusterState, event: JobRevised) -> None:
    job, jobs = event.job, state.jobs
    _require_alive(state, job)
    if event.gpu_memory_bytes is not None and job in state.placed:
        raise LifeCycleError(f"job {jobs.ids[job]!r} has GPUs; what memory it asks for cannot change now")
    for revised in (event.duration_s, event.steps):
        if revised is not None and not 0 < revised < math.inf:
            raise LifeCycleError(f"job {jobs.ids[job]!r}: {revised} is not a run time or a number of steps")
    jobs.keep_declared(job)
    queued = job in state.waiting
    if queued:
        state.waiting.remove(job)
    if event.priority is not None:
        jobs.priority[job] = event.priority
    if event.deadline_s is not None:
        jobs.deadline_s[job] = event.deadline_s
    if event.gpu_memory_bytes is not None:
        jobs.revise_memory(job, Forecast(event.gpu_memory_bytes, source=event.source))
    if event.gpu_util_frac is not None:
        _revise_utilization(state, job, Forecast(event.gpu_util_frac, source=event.source))
    if event.duration_s is not None or event.steps is not None:
        _revise_pace(state, event)
    if queued:
        state.waiting.add(job)


def _revise_utilization(state: ClusterState, job: int, gpu_util: Forecast) -> None:
    """Another utilization: what is believed of the jobs beside it changes too."""
    state.jobs.revise_util(job, gpu_util)
    if job in state.placed:
        refresh_rates(state, (job, *state.residents.neighbours(job, state.placed[job])))


def _revise_pace(state: ClusterState, event: JobRevised) -> None:
    """Another run time or number of steps; the part that is done stays the same."""
    job, jobs = event.job, state.jobs
    count_steps(state, job)
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


JOB_HANDLERS: dict[type[Any], Handler] = {
    JobSubmitted: _submitted, JobStarted: _started, JobProgressed: _progressed, JobSuspended: _suspended,
    JobFinished: _finished, JobFailed: _failed, StartRefused: _start_refused, BackOffEnded: _back_off_ended,
    JobCancelled: _cancelled, JobHeld: _put_on_hold, JobReleased: _released_from_hold, JobRevised: _revised,
    JobNoted: _noted, WokeUp: _woke_up,
}  # fmt: skip
