"""When jobs will start and end: the policy itself, run forward from now on a virtual clock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from gpuwise.core.assignments import Assignment, Desired, Intent
from gpuwise.core.commands import Placement
from gpuwise.core.decision.reasons import from_now
from gpuwise.core.events import Event, JobSubmitted, WokeUp
from gpuwise.core.job.needs import Forecast
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Phase
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.intake import JobIntake
from gpuwise.live.job_records import describe
from gpuwise.live.recovery import MakeEngine, from_json, to_json
from gpuwise.sim.executor.virtual import VirtualExecutor

BUDGET_S = 2.0
"""How long a look ahead may take; jobs that it does not reach have no estimate."""
LEAST_AGE_S, AGE_PER_COST = 1.0, 20.0
"""An answer is given again for a second, and for twenty times as long as it took to work out."""
PATIENCE_S = 30.0
HYPOTHETICAL = "(this job)"


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job is believed to start and to end, as Unix times; None is not known."""

    start_at: float | None = None
    finish_at: float | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would become of a job if it were submitted now."""

    duration: Forecast
    """Its run time."""
    placement: str
    """Where it would start; empty if that was not reached."""
    estimate: Estimate
    why: str
    """Why it would not start at once; empty if it would."""
    ahead: int
    """Jobs in line now."""


@dataclass(slots=True)
class _Course:
    """What a look ahead saw."""

    starts: dict[str, float]
    finishes: dict[str, float]
    placements: dict[str, Placement]


class Estimates:
    """Looks ahead for all jobs at once, and remembers the answer for a moment."""

    def __init__(self, controller: Controller, make_engine: MakeEngine, clock: Clock) -> None:
        self._controller = controller
        self._make_engine = make_engine
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Mapping[str, Estimate] = {}
        self._good_until = -math.inf
        self._body = ""
        self._body_good_until = -math.inf

    def queue(self) -> Mapping[str, Estimate]:
        """The estimates of all jobs that have not ended and are not held; may be a few seconds old."""
        with self._lock:
            if monotonic() >= self._good_until:
                begun = monotonic()
                engine = from_json(self._state(), self._make_engine)
                self._known = self._estimates(look_ahead(engine, self._clock.now_s()))
                self._good_until = monotonic() + max(LEAST_AGE_S, AGE_PER_COST * (monotonic() - begun))
            return self._known

    def _state(self) -> str:
        """The state as a document, at most a second old: writing it holds the controller up."""
        if monotonic() >= self._body_good_until:
            self._body = self._controller.ask(_document).result(PATIENCE_S)
            self._body_good_until = monotonic() + LEAST_AGE_S
        return self._body

    def _estimates(self, course: _Course) -> dict[str, Estimate]:
        uids = course.starts.keys() | course.finishes.keys()
        return {uid: self._estimate(course, uid) for uid in uids}

    def _estimate(self, course: _Course, uid: str) -> Estimate:
        start_s, finish_s = course.starts.get(uid), course.finishes.get(uid)
        return Estimate(
            None if start_s is None else self._clock.unix(start_s),
            None if finish_s is None else self._clock.unix(finish_s),
        )

    def dry_run(self, request: JobRequest, user: str) -> DryRun:
        """What would become of a job; nothing is submitted."""

        def question(intake: JobIntake) -> tuple[Forecast, int]:
            intake.check(request, user)
            return intake.forecast(request, user), len(intake.engine.state.waiting)

        duration, ahead = self._controller.ask(question).result(PATIENCE_S)
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

        course = look_ahead(engine, now_s, [JobSubmitted(now_s, job)], until=HYPOTHETICAL, then=submitted)
        placement = course.placements.get(HYPOTHETICAL)
        where = "" if placement is None else describe(placement, engine.state)
        return DryRun(duration, where, self._estimate(course, HYPOTHETICAL), reasons[0], ahead)


def _document(intake: JobIntake) -> str:
    return to_json(intake.engine)


def look_ahead(
    engine: Engine,
    now_s: float,
    first: list[Event] | None = None,
    *,
    until: str | None = None,
    then: Callable[[], None] | None = None,
    budget_s: float = BUDGET_S,
) -> _Course:
    """Runs an engine forward on a virtual clock until all have ended, or one has, or the time for it is used up.

    ``first`` happens first; ``then`` is called after the policy's answer to it. The engine is used up.
    """
    state, course = engine.state, _Course({}, {}, {})
    now_s = state.now_s = max(now_s, state.now_s)
    executor = VirtualExecutor.from_state(state, state.beliefs)
    gives_up = monotonic() + budget_s
    happened: Sequence[Event | AttemptObserved] = first or [WokeUp(now_s)]
    while monotonic() < gives_up:
        desired = engine.step(now_s, happened)
        _note(course, now_s, desired, happened)
        if then is not None:
            then()
            then = None
        if until in course.finishes:
            break
        executor.follow(desired)
        seen = executor.observe(engine.wake_at)
        if seen is None:
            break
        now_s, happened = seen
    return course


def _note(
    course: _Course, now_s: float, desired: Sequence[Desired], happened: Sequence[Event | AttemptObserved]
) -> None:
    for each in happened:
        if isinstance(each, AttemptObserved) and each.phase is Phase.SUCCEEDED:
            course.finishes[each.job] = each.at_s
    for wanted in desired:
        if isinstance(wanted, Assignment) and wanted.intent is Intent.RUN and wanted.placement is not None:
            course.starts.setdefault(wanted.job, now_s)
            course.placements.setdefault(wanted.job, wanted.placement)
