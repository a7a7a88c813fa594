"""What users change of jobs after they were submitted: priority, deadline and time limit; and starting them again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuwise.core.events import Event, JobFailed, JobRevised, WokeUp
from gpuwise.core.job.life_cycle import PLACED, Status
from gpuwise.core.job.needs import Source
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import Cause
from gpuwise.engine.observing import NewestUnwanted
from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.intake import JobIntake


def update(intake: JobIntake, now_s: float, uids: Sequence[str], wanted: Mapping[str, Any]) -> list[Event]:
    """Gives jobs another priority, deadline or time limit; None is no deadline, or no limit."""
    events: list[Event] = []
    for uid in uids:
        if uid not in intake.admission:
            continue
        request = replace(intake.job_records.live[uid].request, **wanted)
        intake.check_deadline(now_s, request if "deadline_s" in wanted else replace(request, deadline_s=None))
        intake.job_records.change(uid, request=request)
        if "priority" in wanted:
            intake.admission.set_priority(uid, request.priority)
        if wanted.keys() & {"priority", "deadline_s"}:
            events.append(_revised(intake, now_s, uid, request, wanted))
    return [*events, WokeUp(now_s)] if events else []


def _revised(intake: JobIntake, now_s: float, uid: str, request: JobRequest, wanted: Mapping[str, Any]) -> JobRevised:
    unix = request.deadline_s
    deadline_s = math.inf if unix is None else intake.clock.seconds(unix)
    return JobRevised(
        now_s,
        intake.row(uid),
        source=Source.DECLARED,
        priority=request.priority if "priority" in wanted else None,
        deadline_s=deadline_s if "deadline_s" in wanted else None,
    )


def requeue(intake: JobIntake, now_s: float, uids: Sequence[str], by: str) -> list[Event]:
    """Stops jobs that have GPUs and puts them into the queue again, from their last checkpoints if they have any."""
    state, events = intake.engine.state, list[Event]()
    for uid in uids:
        if uid not in intake.admission:
            continue
        row = intake.row(uid)
        if state.status(row) not in PLACED:
            continue
        intake.job_records.requeued.add((uid, state.jobs.placements.item(row)))
        kept = float(state.jobs.saved_steps.item(row))
        events += (JobFailed(now_s, row, kept, f"requeued by {by}", True, Cause.REQUEUED), NewestUnwanted(now_s, row))
    if not events:
        raise NotPossibleError(f"job {uids[0]} has no GPUs; a job that runs can be requeued, and resume ends a hold")
    return events


def hold(intake: JobIntake, uids: Sequence[str]) -> None:
    """Puts jobs on hold that have not started."""
    state = intake.engine.state
    waiting = [uid for uid in uids if uid in intake.admission and state.status(intake.row(uid)) is Status.PENDING]
    if not waiting:
        raise NotPossibleError(f"job {uids[0]} does not wait to be started; suspend takes GPUs from jobs that run")
    intake.hold(waiting)
