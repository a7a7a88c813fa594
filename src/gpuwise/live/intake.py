"""Turns what users ask for and what executors observe into events for the engine, and keeps records of both."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from gpuwise.core.assignments import Desired
from gpuwise.core.commands import Command, Rearrange, Reason, Resize, Why
from gpuwise.core.decision.reasons import from_now
from gpuwise.core.events import (
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobHeld,
    JobReleased,
    JobRevised,
    NodeEvent,
    StartRefused,
)
from gpuwise.core.job.life_cycle import ENDED
from gpuwise.core.job.needs import Forecast
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.shape import task_counts, with_counts
from gpuwise.core.observations import OVER, AttemptObserved, Phase
from gpuwise.core.records import JobRecord, Store
from gpuwise.engine.engine import Engine
from gpuwise.live.admission import Admission
from gpuwise.live.clock import Clock
from gpuwise.live.forecasts import Forecasts, ObservedPaces, adopt
from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.job_records import JobRecords, how_ended, is_over
from gpuwise.live.recovery import damaged
from gpuwise.live.submissions import UNSUCCESSFUL, Submissions, UserLimits


class JobIntake:
    """One engine, its job records and its admission; made again whenever the engine is rebuilt from the store."""

    def __init__(self, engine: Engine, store: Store, clock: Clock, limits: UserLimits) -> None:
        self.engine = engine
        self.job_records = JobRecords(clock, store.live_jobs())
        self.admission = Admission(_gpus(engine), store.queues())
        self._store = store
        self.clock = clock
        self._paces = ObservedPaces()
        self._forecasts = Forecasts(store)
        self._submissions = Submissions(
            store, clock, limits, self.job_records, self.admission, self._forecasts, store.last_job_number() + 1
        )
        self.unrecorded: list[int] = []
        """Rows of jobs that are left out, since their records cannot be read."""
        self._refusals: dict[str, str] = {}
        """Why starts were refused last, by job; not known after a restart."""
        self._restore()

    def _restore(self) -> None:
        """Brings records and admission in step with an engine that may be on other hardware now."""
        state = self.engine.state
        self.unrecorded = self._unrecorded()
        for row in self.unrecorded:
            self.admission.restore_unrecorded(state.jobs.ids[row])
        for uid in tuple(self.job_records.live):
            if uid not in state.jobs.row_of:
                raise damaged(self._store, f"table jobs has job {uid}, and tables snapshots and journal have not")
            row = self.row(uid)
            adopt(self.job_records.live[uid], state.jobs, row)
            if self.job_records.differs(state, row):
                self.job_records.follow(state, row)
            if not is_over(self.job_records.live[uid]):
                self.admission.restore(self.job_records.live[uid])
                self._forecasts.add(self.job_records.live[uid])
                self._follow_gpus(uid, row)
        self.admission.admit()

    def _unrecorded(self) -> list[int]:
        """The rows of jobs that have not ended and whose records cannot be read."""
        state, found = self.engine.state, list[int]()
        for uid, row in state.jobs.row_of.items():
            if uid not in self.job_records.live and state.status(row) not in ENDED:
                if f"job {uid}" not in self._store.unreadable:
                    raise damaged(self._store, f"table jobs does not have job {uid} as one that has not ended")
                found.append(row)
        return found

    def end_unrecorded(self, now_s: float) -> list[Event]:
        """What follows from the ends of jobs whose records cannot be read, which the engine has taken in."""
        events: list[Event] = []
        for row in self.unrecorded:
            events += self._cancel(now_s, self.admission.ended(self.engine.state.jobs.ids[row], succeeded=False))
        return [*events, *self.admit(now_s)]

    # -- what users ask for ---------------------------------------------------------------------------------------

    def submit(
        self, now_s: float, requests: Sequence[JobRequest], user: str, key: str | None
    ) -> tuple[list[Event], list[JobRecord]]:
        """New jobs, all of them or none; with a key that was used before, the jobs it made then."""
        return self._submissions.submit(self.engine, now_s, requests, user, key)

    def check(self, request: JobRequest, user: str) -> None:
        """Raises what `submit` would."""
        self._submissions.check(self.engine, [request], user)

    def forecast(self, request: JobRequest, user: str) -> Forecast:
        """Forecast run time: declared, the median of earlier runs, predicted, or a default."""
        return self._forecasts.duration(request, user)

    def check_deadline(self, now_s: float, request: JobRequest) -> None:
        """Refuses a deadline that is past."""
        self._submissions.check_deadline(self.clock.unix(now_s), request)

    def cancel(self, now_s: float, uids: Iterable[str], why: str) -> list[Event]:
        """Jobs are cancelled, and those that wait for them with them."""
        return self._cancel(now_s, ((uid, why) for uid in uids))

    def _cancel(self, now_s: float, reasons: Iterable[tuple[str, str]]) -> list[Event]:
        events: list[Event] = []
        left = deque(reasons)
        while left:
            uid, why = left.popleft()
            if uid in self.admission:
                events.append(JobCancelled(now_s, self.row(uid)))
                self.job_records.change(uid, why_ended=why)
                left += self._ended(uid, "cancelled")
        return events

    def hold(self, uids: Iterable[str]) -> None:
        """Users put jobs on hold."""
        for uid in uids:
            if uid in self.admission:
                self.admission.hold(uid)

    def release(self, uids: Iterable[str]) -> None:
        """Users let jobs continue that they had put on hold."""
        for uid in uids:
            if uid in self.admission:
                self.admission.release(uid)

    def resize(self, now_s: float, uid: str, gpus: int) -> Sequence[Desired]:
        """Lets a running elastic job continue on another number of GPUs, if there is room and its queue has quota."""
        if uid not in self.admission:
            raise NotPossibleError(f"job {uid} has ended")
        state, job = self.engine.state, self.row(uid)
        shape, now = state.jobs.shape_by_row[job], state.placed.get(job)
        if now is None:
            raise NotPossibleError(f"job {uid} has no GPUs now; it can be resized while it runs")
        if not shape.min_gpus <= gpus <= shape.max_gpus:
            raise NotPossibleError(f"job {uid} may run on {shape.min_gpus} to {shape.max_gpus} GPUs, not {gpus}")
        if gpus == now.gpus:
            return []
        trial = state.capacity.fork()
        trial.give(now, shape)
        wanted = with_counts(shape, task_counts(now.tasks)) if shape.roles else shape
        placement = self.engine.view.placer(trial, wanted, gpus)
        if placement is None:
            raise NotPossibleError(f"there is no room for job {uid} on {gpus} GPUs now")
        self.admission.check_resize(uid, gpus * self.job_records.live[uid].request.gpu_frac)
        desired = self.engine.order(now_s, [Resize(job, placement)])
        self._follow_gpus(uid, job)
        return desired

    # -- what executors observe -----------------------------------------------------------------------------------

    def observed(self, seen: AttemptObserved) -> None:
        """Records what was observed of an attempt; to be called before the engine takes it in."""
        record = self.job_records.live.get(seen.job)
        if seen.phase is Phase.RUNNING and record is not None:
            if record.status == "starting" and record.attempts == seen.attempt:
                self.job_records.attempt_started(seen, record.placement)
            elif seen.attempt == record.attempts:
                self.job_records.progressed(seen)
                self._paces.observe(seen)
        elif seen.phase in OVER:
            if seen.phase is Phase.SUCCEEDED:
                self.job_records.progressed(seen)
            if seen.attempt == (record.attempts if record is not None else seen.attempt):
                self._paces.remove(seen.job)
            if seen.details.started_s is not None and (place := self._unended_place(seen)) is not None:
                self.job_records.attempt_ended(seen, place, cancelled=self._is_cancelled(seen))

    def _is_cancelled(self, seen: AttemptObserved) -> bool:
        """Whether an attempt was stopped because its job was cancelled, and not because it lost its node."""
        if seen.phase is not Phase.STOPPED:
            return False
        record = self._record(seen.job)
        return record is not None and record.status == "cancelled"

    def _record(self, uid: str) -> JobRecord | None:
        """A job's record; None if there is none, or if it cannot be read."""
        return self.job_records.live.get(uid) or next(iter(self._store.jobs(uids=[uid], limit=1)), None)

    def _unended_place(self, seen: AttemptObserved) -> str | None:
        """Where an attempt that is over was; None if its end is recorded already, or its job is not known here."""
        if (place := self.job_records.place_of(seen.job, seen.attempt)) is not None:
            return place
        known = next((each for each in self._store.attempts(seen.job) if each.number == seen.attempt), None)
        if known is None:  # it ended before its start was recorded, and the controller was restarted since
            return "" if self._record(seen.job) is not None else None
        return known.placement if known.ended_at is None else None

    def outcomes(self, now_s: float, events: Iterable[Event]) -> list[Event]:
        """What follows from what has happened: jobs that now can never start are cancelled."""
        follows: list[Event] = []
        ids = self.engine.state.jobs.ids
        for event in events:
            if isinstance(event, JobFinished):
                uid = ids[event.job]
                follows += self._forecasts.learn(self.engine.state, event, self.job_records.live[uid])
                follows += self._cancel(now_s, self._ended(uid, "succeeded"))
            elif isinstance(event, JobFailed) and not event.will_retry:
                self.job_records.change(ids[event.job], why_ended=event.cause)
                follows += self._cancel(now_s, self._ended(ids[event.job], "failed"))
            elif isinstance(event, StartRefused):
                self._refusals[ids[event.job]] = event.cause
        return follows

    def _ended(self, uid: str, status: str) -> list[tuple[str, str]]:
        """A job has ended; those that wait for it and now never can start, each with the reason."""
        self._paces.remove(uid)
        self._refusals.pop(uid, None)
        self._forecasts.remove(self.job_records.live[uid])
        if status in UNSUCCESSFUL:
            for name in (uid, uid.partition("-")[0]):
                self._submissions.unsuccessful[name] = f"job {uid} {how_ended(status)}"
        return self.admission.ended(uid, succeeded=status == "succeeded")

    def revisions(self, now_s: float) -> list[Event]:
        """Run times that turn out other than forecast."""
        return [
            JobRevised(now_s, self.row(uid), duration_s=duration_s)
            for uid, duration_s in self._paces.news(now_s, self.engine.state)
            if uid in self.job_records.live
        ]

    def utilizations(self, now_s: float, gpu_util_frac: Mapping[str, float]) -> list[Event]:
        """Utilizations that were measured."""
        return [
            JobRevised(now_s, self.row(uid), gpu_util_frac=frac)
            for uid, frac in gpu_util_frac.items()
            if uid in self.admission
        ]

    # -- the engine -----------------------------------------------------------------------------------------------

    def admit(self, now_s: float) -> list[Event]:
        """Which jobs enter the queue that the policy sees and which leave it, after all that has happened."""
        self.admission.begin(self.clock.unix(now_s))
        self.admission.admit()
        events: list[Event] = []
        on_hold = self.engine.state.on_hold
        for uid in self.admission.take_changed():
            job, causes = self.row(uid), sorted(self.admission.causes(uid))
            text = ",".join(causes)
            if text != self.job_records.live[uid].held:
                self.job_records.change(uid, held=text)
            if causes and job not in on_hold:
                events.append(JobHeld(now_s, job, text))
            elif not causes and job in on_hold:
                events.append(JobReleased(now_s, job))
        return events

    @property
    def begins_s(self) -> float:
        """When the next job may start that its user wants to start later; infinity is never."""
        return min(map(self.clock.seconds, self.admission.begins.values()), default=math.inf)

    def follow(self, records: Sequence[Event | Command]) -> bool:
        """Brings the job records in step with what the engine has done; whether other jobs may be admitted now."""
        state = self.engine.state
        rows: dict[int, None] = {}
        has_other_gpus = False
        if any(isinstance(each, NodeEvent) for each in records):  # only the engine knows which jobs were on which node
            live = (self.row(uid) for uid in self.job_records.live)
            rows.update((row, None) for row in live if self.job_records.differs(state, row))
            self.nodes_changed()
            has_other_gpus = self.admission.set_gpus(_gpus(self.engine))
        for each in records:
            job = getattr(each, "job", None)
            if job is not None:
                rows[job] = None
            for moved in each.moves if isinstance(each, Rearrange) else ():
                rows[moved[0]] = None
        for row in rows:
            self.job_records.follow(state, row)
            self._follow_gpus(state.jobs.ids[row], row)
        self._submissions.unsuccessful.clear()
        return has_other_gpus

    def nodes_changed(self) -> None:
        """Drops what is known of which jobs are feasible: that depends on the nodes."""
        self._submissions.feasibility.answers.clear()

    def _follow_gpus(self, uid: str, row: int) -> None:
        """Lets admission know how many GPUs a job has."""
        if uid not in self.admission:
            return
        placement = self.engine.state.placed.get(row)
        if placement is None:
            self.admission.displaced(uid)
        else:
            self.admission.placed(uid, placement.gpus * self.job_records.live[uid].request.gpu_frac)

    def reason(self, uid: str) -> Reason | None:
        """Why a job waits, with times from now; None if it does not."""
        if uid not in self.admission:
            return None
        reason = self.admission.reason(uid) or self.engine.reason(self.row(uid))
        if reason is None:
            return None
        if reason.code is Why.BACK_OFF:
            reason = Reason(reason.code, {**reason.numbers, "cause": self._refusals.get(uid, "")})
        if reason.code is Why.BEGIN:
            reason = Reason(reason.code, {"at_s": self.clock.seconds(float(reason.numbers["begin_s"]))})
        return from_now(reason, self.clock.now_s())

    def row(self, uid: str) -> int:
        """The row of a job in the engine's table."""
        return self.engine.state.jobs.row_of[uid]


def _gpus(engine: Engine) -> float:
    return float(engine.state.nodes.total_gpus)
