"""When jobs will start and end: the policy itself, run forward from now on a virtual clock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from gpuwise.core.assignments import Assignment, Desired, Intent
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.decision.reasons import from_now
from gpuwise.core.events import Event, JobSubmitted, WokeUp
from gpuwise.core.job.needs import Forecast
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Phase
from gpuwise.core.records import JobRecord
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.intake import JobIntake
from gpuwise.live.job_records import describe
from gpuwise.live.recovery import MakeEngine, from_json, to_json
from gpuwise.sim.executor.virtual import VirtualExecutor

BUDGET_S = 2.0
"""How long a simulation may take; jobs that it does not reach have no estimate."""
LEAST_AGE_S, AGE_PER_COST = 1.0, 20.0
"""Estimates are reused for a second, and for twenty times as long as they took to compute."""
QUICK_S = 0.05
TIMEOUT_S = 30.0
HYPOTHETICAL = "(this job)"


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job is expected to start and to end, as Unix times; None is not known."""

    start_at: float | None = None
    finish_at: float | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The forecast for a job if it were submitted now."""

    duration: Forecast
    """Its run time."""
    placement: str
    """Where it would start; empty if that was not reached."""
    estimate: Estimate
    why: str
    """Why it would not start at once; empty if it would."""
    ahead: int
    """Jobs in the queue now."""


@dataclass(frozen=True, slots=True)
class QueueEstimates:
    """The estimates of all jobs, and what each job did at the moment they are of."""

    of_job: Mapping[str, Estimate]
    then: Mapping[str, tuple[str, int, bool, int]]
    """Status, how often it had been given GPUs, whether it was on hold, priority."""

    def fit(self, record: JobRecord) -> bool:
        """Whether a job still does what it did then."""
        now = (record.status, record.attempts, bool(record.held), record.request.priority)
        return self.then.get(record.uid) == now

    def of(self, record: JobRecord) -> Estimate:
        """The estimate of a job; unknown if that is of another moment than its record."""
        return self.of_job.get(record.uid, _UNKNOWN) if self.fit(record) else _UNKNOWN


_UNKNOWN = Estimate()
NONE = QueueEstimates({}, {})


@dataclass(slots=True)
class _Timeline:
    """What happened in a simulation."""

    starts: dict[str, float]
    finishes: dict[str, float]
    placements: dict[str, Placement]


class Estimates:
    """Estimates of all jobs at once, computed by simulation and reused for a moment."""

    def __init__(self, controller: Controller, make_engine: MakeEngine, clock: Clock) -> None:
        self._controller = controller
        self._make_engine = make_engine
        self._clock = clock
        self._lock = threading.Lock()
        self._queue = NONE
        self._cost_s = 0.0
        self._expires_s = -math.inf
        self._document = ""
        self._document_expires_s = -math.inf

    def queue(self, records: Sequence[JobRecord] = ()) -> QueueEstimates:
        """The estimates of all jobs that have not ended and are not on hold; may be a few seconds old.

        They are computed again at once if that is quick and one of the records is newer.
        """
        with self._lock:
            is_stale = self._cost_s < QUICK_S and not all(map(self._queue.fit, records))
            if is_stale:
                self._document_expires_s = -math.inf
            if is_stale or monotonic() >= self._expires_s:
                began = monotonic()
                self._queue = self._computed()
                self._cost_s = monotonic() - began
                self._expires_s = monotonic() + max(LEAST_AGE_S, AGE_PER_COST * self._cost_s)
            return self._queue

    @property
    def latest(self) -> QueueEstimates:
        """The last estimates, whatever their age; does not wait."""
        return self._queue

    def _computed(self) -> QueueEstimates:
        engine = from_json(self._state(), self._make_engine)
        then = {engine.state.jobs.ids[row]: _does(engine.state, row) for row in range(len(engine.state.jobs))}
        timeline = look_ahead(engine, self._clock.now_s())
        uids = timeline.starts.keys() | timeline.finishes.keys()
        return QueueEstimates({uid: self._estimate(timeline, uid) for uid in uids}, then)

    def _state(self) -> str:
        """The state as a document, at most a second old: writing it delays the controller."""
        if monotonic() >= self._document_expires_s:
            self._document = self._controller.ask(lambda intake: to_json(intake.engine)).result(TIMEOUT_S)
            self._document_expires_s = monotonic() + LEAST_AGE_S
        return self._document

    def _estimate(self, timeline: _Timeline, uid: str) -> Estimate:
        start_s, finish_s = timeline.starts.get(uid), timeline.finishes.get(uid)
        return Estimate(
            None if start_s is None else self._clock.unix(start_s),
            None if finish_s is None else self._clock.unix(finish_s),
        )

    def dry_run(self, request: JobRequest, user: str) -> DryRun:
        """The forecast for a job; nothing is submitted."""

        def question(intake: JobIntake) -> tuple[Forecast, int]:
            intake.check(request, user)
            return intake.forecast(request, user), len(intake.engine.state.waiting)

        duration, ahead = self._controller.ask(question).result(TIMEOUT_S)
        with self._lock:
            engine = from_json(self._state(), self._make_engine)
        now_s = max(self._clock.now_s(), engine.state.now_s)
        deadline_s = math.inf if request.deadline_s is None else self._clock.seconds(request.deadline_s)
        spec = request.spec(HYPOTHETICAL, submit_s=now_s, duration_s=duration, deadline_s=deadline_s)
        job = engine.state.jobs.declare([spec])[0]
        reasons: list[str] = []

        def submitted() -> None:
            reason = engine.reason(job)
            reasons.append("" if reason is None else str(from_now(reason, now_s)))

        timeline = look_ahead(engine, now_s, [JobSubmitted(now_s, job)], until=HYPOTHETICAL, then=submitted)
        placement = timeline.placements.get(HYPOTHETICAL)
        where = "" if placement is None else describe(placement, engine.state)
        return DryRun(duration, where, self._estimate(timeline, HYPOTHETICAL), reasons[0], ahead)


def _does(state: ClusterState, row: int) -> tuple[str, int, bool, int]:
    """What a job does now, as far as estimates depend on it."""
    jobs = state.jobs
    return state.status(row).name.lower(), jobs.placements.item(row), bool(jobs.held.item(row)), jobs.priority.item(row)


def look_ahead(
    engine: Engine,
    now_s: float,
    first: list[Event] | None = None,
    *,
    until: str | None = None,
    then: Callable[[], None] | None = None,
    budget_s: float = BUDGET_S,
) -> _Timeline:
    """Runs an engine forward on a virtual clock until all jobs have ended, or ``until`` has, or the budget is spent.

    ``first`` are the first events; ``then`` is called after the policy's decision on them. The engine is changed.
    """
    state, timeline = engine.state, _Timeline({}, {}, {})
    now_s = state.now_s = max(now_s, state.now_s)
    executor = VirtualExecutor.from_state(state, state.beliefs)
    deadline = monotonic() + budget_s
    happened: Sequence[Event | AttemptObserved] = first or [WokeUp(now_s)]
    while monotonic() < deadline:
        desired = engine.step(now_s, happened)
        _note(timeline, now_s, desired, happened)
        if then is not None:
            then()
            then = None
        if until in timeline.finishes:
            break
        executor.follow(desired)
        seen = executor.observe(engine.wake_at)
        if seen is None:
            break
        now_s, happened = seen
    return timeline


def _note(
    timeline: _Timeline, now_s: float, desired: Sequence[Desired], happened: Sequence[Event | AttemptObserved]
) -> None:
    for each in happened:
        if isinstance(each, AttemptObserved) and each.phase is Phase.SUCCEEDED:
            timeline.finishes[each.job] = each.at_s
    for wanted in desired:
        if isinstance(wanted, Assignment) and wanted.intent is Intent.RUN and wanted.placement is not None:
            timeline.starts.setdefault(wanted.job, now_s)
            timeline.placements.setdefault(wanted.job, wanted.placement)
