"""From what an executor sees to what has happened: observations of attempts become events, or nothing if not news.

Executors report late, twice and out of order. An observation counts by its attempt: one that is known to be over says
nothing any more, and a phase that the job has left behind is no news.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.events import (
    Event,
    JobFailed,
    JobFinished,
    JobProgressed,
    JobRevised,
    JobStarted,
    JobSuspended,
    StartRefused,
)
from gpuwise.core.job.life_cycle import ENDED, Status
from gpuwise.core.observations import OVER, UNCOUNTED, AttemptObserved, Cause, Details, Phase
from gpuwise.core.rates import steps_made
from gpuwise.core.units import WHOLE_GPU_MILLI, format_bytes

STARTING, RUNNING, SUSPENDING = int(Status.STARTING), int(Status.RUNNING), int(Status.SUSPENDING)
SEEN_RUNNING, SEEN_SUCCEEDED = Phase.RUNNING, Phase.SUCCEEDED
ON_DEVICES = frozenset((STARTING, RUNNING, SUSPENDING))
"""In these, an attempt may be seen to do something."""
PROGRESS_NEWS_FRAC = 0.02
"""The part of all steps by which a report must differ from the estimate to be news."""
OUT_OF_MEMORY_RETRIES = 3
LOST_RETRIES = 3
"""A job that was lost is run again this often, if it may be run again at all."""
GROWTH = 1.5
"""An estimate of memory that was too low grows by this at least; three times is 3.4 times the first."""
HEADROOM = 1.1
"""What was measured, and a little more."""
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 1.0, 300.0
_NOTHING: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class NewestUnwanted(Event):
    """An older attempt has ended its job, or failed: the newest is not wanted any more. It is never journaled."""

    job: int


def events_of(state: ClusterState, seen: AttemptObserved) -> Sequence[Event]:
    """What an observation says that the state does not know yet."""
    jobs = state.jobs
    at_s, uid, attempt, phase, step, _, _ = seen  # unpacked at once: this runs twice for every job of a simulation
    job = jobs.row_of.get(uid)
    if job is None:
        return _NOTHING
    status, last = jobs.status.item(job), jobs.placements.item(job)
    newest = attempt == last
    if status == STARTING and phase is SEEN_RUNNING and newest:
        if step is None and at_s == state.now_s:  # by far the most common
            return (JobStarted(at_s, job),)
        return _started(state, job, seen)
    if phase is SEEN_SUCCEEDED:  # whatever was thought of that attempt meanwhile
        if newest and status in ON_DEVICES:
            return (JobFinished(at_s if at_s == state.now_s else _moment(state, job, at_s), job),)
        ran = 0 < attempt <= last and status not in ENDED
        return (JobFinished(_moment(state, job, at_s), job), NewestUnwanted(at_s, job)) if ran else _NOTHING
    if status not in ON_DEVICES or not (newest or jobs.over.item(job) < attempt < last):
        return _NOTHING
    if phase is Phase.FAILED:
        failed = _failed(state, job, seen)
        return failed if newest else (*failed, NewestUnwanted(at_s, job))
    if phase is SEEN_RUNNING and status == RUNNING and newest:
        return _progressed(state, job, seen)
    return _gone(state, job, status, seen) if newest and phase in OVER else _NOTHING


def own_steps(state: ClusterState, job: int, seen: AttemptObserved) -> float | None:
    """A job's own step in the engine's steps; None if it does not say how many there are and they were not declared."""
    if seen.step is None or not math.isfinite(seen.step):
        return None
    total: float = state.jobs.steps.item(job)
    if seen.step <= 0:
        return 0.0
    if seen.steps == total or (seen.steps is None and state.jobs.steps_known.item(job)):
        return min(max(seen.step, 0.0), total)
    return min(max(seen.step / seen.steps, 0.0), 1.0) * total if seen.steps and seen.steps > 0 else None


def _moment(state: ClusterState, job: int, at_s: float) -> float:
    """When something happened: not after now, and not before the job got its place."""
    if at_s == state.now_s:
        return at_s
    return float(max(min(at_s, state.now_s), state.jobs.placed_s.item(job)))


def _started(state: ClusterState, job: int, seen: AttemptObserved) -> Sequence[Event]:
    started = JobStarted(_moment(state, job, seen.at_s), job)
    if seen.step is None:
        return (started,)
    done = own_steps(state, job, seen)
    if done is None or not _is_news(state, job, done - state.jobs.steps_done.item(job)):
        return (started,)
    return started, JobProgressed(started.at_s, job, done)


def _progressed(state: ClusterState, job: int, seen: AttemptObserved) -> Sequence[Event]:
    done, at_s = own_steps(state, job, seen), _moment(state, job, seen.at_s)
    if done is None or at_s < state.jobs.reported_s.item(job):  # older than what is known
        return _NOTHING
    return (
        (JobProgressed(at_s, job, done),)
        if _is_news(state, job, done - steps_made(state.jobs, job, at_s))
        else _NOTHING
    )


def _is_news(state: ClusterState, job: int, difference: float) -> bool:
    return bool(abs(difference) > PROGRESS_NEWS_FRAC * state.jobs.steps.item(job))


def _gone(state: ClusterState, job: int, status: int, seen: AttemptObserved) -> Sequence[Event]:
    """The newest attempt is not there, without having ended by itself."""
    if status == SUSPENDING:  # whatever became of it, it has left its devices
        return (JobSuspended(_moment(state, job, seen.at_s), job, _kept(state, job, seen)),)
    if seen.phase is Phase.REFUSED and status == STARTING:
        return _refused(state, job, seen)
    if seen.phase in (Phase.SUSPENDED, Phase.MOVED):  # late, as it had been asked to: what it has done is known
        at_s, kept = _moment(state, job, seen.at_s), _kept(state, job, seen)
        return (JobFailed(at_s, job, kept, "it left late, as it was asked to before", True, str(Cause.LOST)),)
    lost = replace(seen.details, cause=Cause.LOST, text=seen.details.text or "it was stopped from outside gpuwise")
    return _failed(state, job, seen._replace(details=lost))


def _kept(state: ClusterState, job: int, seen: AttemptObserved) -> float:
    """What is left of a job's work after an attempt: what it says, or all that it is thought to have done."""
    if seen.step is not None and math.isfinite(seen.step):
        return own_steps(state, job, seen) or 0.0
    if seen.phase is Phase.SUSPENDED:
        return steps_made(state.jobs, job, _moment(state, job, seen.at_s))
    return 0.0 if seen.phase is Phase.FAILED else float(state.jobs.saved_steps.item(job))


def _failed(state: ClusterState, job: int, seen: AttemptObserved) -> Sequence[Event]:
    jobs, details = state.jobs, seen.details
    counts = (jobs.retries.item(job), jobs.failures.item(job), jobs.out_of_memory.item(job))
    history = History(*counts, requeue=jobs.requeue.item(job))
    verdict = judge(details.cause, details.text, history, _memory(state, job, details))
    at_s, kept = _moment(state, job, seen.at_s), _kept(state, job, seen)
    failed = JobFailed(at_s, job, kept, verdict.cause, verdict.retry, str(details.cause))
    if verdict.gpu_memory_bytes is None:
        return (failed,)
    return failed, JobRevised(state.now_s, job, gpu_memory_bytes=verdict.gpu_memory_bytes)


def _memory(state: ClusterState, job: int, details: Details) -> AttemptMemory:
    shape, placement = state.jobs.shape_by_row[job], state.placed.get(job)
    most = state.nodes.largest_memory_bytes(shape)
    had, gpus = shape.gpu_memory_bytes, shape.gpus
    if placement is not None:  # a policy may have given it a smaller part of the device than it asked for
        gpus = placement.gpus
        device_bytes = min((state.nodes.memory_of(grant.node) for grant in placement.grants), default=most)
        had = had or device_bytes * placement.milli / WHOLE_GPU_MILLI
    return AttemptMemory(had or most, (details.peak_memory_bytes or 0.0) / max(gpus, 1), most)


def _refused(state: ClusterState, job: int, seen: AttemptObserved) -> Sequence[Event]:
    until_s = state.now_s + back_off_s(state.jobs.refusals.item(job) + 1)
    why = seen.details.text or str(seen.details.cause)
    return (StartRefused(_moment(state, job, seen.at_s), job, why, until_s, seen.details.avoid),)


# -- whether a job is tried again: one rule, simulated and live --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """What has happened to a job before."""

    retries: int
    """Retries its user allows."""
    failures: int
    """Failures that counted."""
    out_of_memory: int
    """Attempts that ran out of memory."""
    requeue: bool = False
    """Whether it is run again after it was lost, also without retries."""


@dataclass(frozen=True, slots=True)
class AttemptMemory:
    """Memory per GPU of an attempt that ran out of it."""

    had_bytes: float
    """What it was thought to need, or its share of the device."""
    peak_bytes: float
    """The most it was seen to use; 0 is unknown."""
    most_bytes: float
    """What the largest device that it may have has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job is tried again, and how much memory it is thought to need from now on."""

    retry: bool
    cause: str
    gpu_memory_bytes: float | None = None


def judge(cause: Cause, detail: str, history: History, memory: AttemptMemory) -> Verdict:
    """What becomes of a job after a failure."""
    if cause in UNCOUNTED:
        return Verdict(True, detail)
    if cause is Cause.LIMIT:
        return Verdict(False, detail)
    if cause is Cause.OUT_OF_MEMORY:
        return _after_out_of_memory(history, memory)
    if cause is Cause.LOST:
        return _after_lost(detail, history)
    return Verdict(history.failures < history.retries, detail)


def _after_lost(detail: str, history: History) -> Verdict:
    """How far it got is not known, so that only a job that may run twice is run again."""
    if not history.retries and not history.requeue:
        return Verdict(False, f"{detail or 'lost'}; it is not run again without --requeue or --retries")
    return Verdict(history.failures < max(history.retries, LOST_RETRIES), detail)


def back_off_s(refusals: int) -> float:
    """How long a job waits after ``refusals`` refused starts in a row."""
    return min(FIRST_BACK_OFF_S * 2.0 ** min(refusals - 1, 60), LONGEST_BACK_OFF_S)


def _after_out_of_memory(history: History, memory: AttemptMemory) -> Verdict:
    had, most = format_bytes(memory.had_bytes), format_bytes(memory.most_bytes)
    if memory.had_bytes >= memory.most_bytes:
        return Verdict(False, f"out of memory: it had all {most} of a device")
    if memory.peak_bytes > memory.most_bytes:
        needed = format_bytes(memory.peak_bytes)
        return Verdict(False, f"out of memory: it needs {needed} on a device, and the largest has {most}")
    if history.out_of_memory >= OUT_OF_MEMORY_RETRIES:
        return Verdict(False, f"out of memory {history.out_of_memory + 1} times, the last time with {had} per device")
    wanted = corrected_bytes(memory.had_bytes, memory.peak_bytes, memory.most_bytes)
    return Verdict(True, f"out of memory with {had} per device; tried again with {format_bytes(wanted)}", wanted)


def corrected_bytes(had: float, peak: float, most: float) -> float:
    """The next estimate for a job that ran out with ``had`` per GPU, in whole bytes, at most what a GPU has."""
    return min(float(math.ceil(max(had * GROWTH, peak * HEADROOM))), most)
