"""The desk: turns what users ask for and what executors tell into events for the engine, and keeps the books."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.eligible import describe_labels
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import Command, Rearrange, Reason, Resize, Why
from gpuwise.core.decision.reasons import from_now
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import (
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobHeld,
    JobReleased,
    JobRevised,
    JobSubmitted,
    NodeEvent,
    StartRefused,
)
from gpuwise.core.job.needs import ON_ONE_NODE, Forecast, Role, Source, sharing_only
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.shape import SHAPE_FIELDS, describe_roles, task_counts, with_counts
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import OVER, AttemptObserved, Phase
from gpuwise.core.protocols import feasible
from gpuwise.core.records import JobRecord, Store
from gpuwise.core.units import format_bytes
from gpuwise.engine.engine import Engine
from gpuwise.live.admission import Admission
from gpuwise.live.clock import Clock
from gpuwise.live.forecasts import Forecasts, adopt, record_fields
from gpuwise.live.job_records import JobRecords, is_over
from gpuwise.live.pace import Paces

JOBS_PER_USER = 50_000
MOST_FITS = 1000
"""So many answers to whether a job fits are kept."""
FITS_BY = ("gpu_frac", *(name for name in SHAPE_FIELDS if name != "milli"))
"""The properties of a job that decide whether it fits."""
_LOST = ("failed", "cancelled")
Record = TypeVar("Record")


class NotPossibleError(GpuwiseError):
    """Something asked of a job, or for one, that cannot be done."""


class LimitError(GpuwiseError):
    """A user has as many jobs as they may have."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one user may have."""

    jobs_per_user: int = JOBS_PER_USER
    """Jobs that have not ended."""


class JobIntake:
    """One engine, its books and its admission; made anew whenever the engine is rebuilt from the store."""

    def __init__(self, engine: Engine, store: Store, clock: Clock, limits: Limits) -> None:
        self.engine = engine
        self.job_records = JobRecords(clock, store.live_jobs())
        self.admission = Admission(_gpus(engine), store.queues())
        self._store = store
        self._clock = clock
        self._limits = limits
        self._next_number = store.last_job_number() + 1
        self._lost: dict[str, str] = {}
        """Jobs that ended in this turn without success, also under their arrays' names, and how it is told."""
        self._paces = Paces()
        self._forecasts = Forecasts(store)
        self._refusals: dict[str, str] = {}
        """Why starts were refused last, by job; not known after a restart."""
        self._fits: dict[tuple[Any, ...], bool] = {}
        self._take_over()

    def _take_over(self) -> None:
        """Brings the books in step with an engine that may be on other hardware now, and jobs to where they stood."""
        state = self.engine.state
        for uid in tuple(self.job_records.live):
            row = self._row(uid)
            adopt(self.job_records.live[uid], state.jobs, row)
            if self.job_records.differs(state, row):
                self.job_records.follow(state, row)
            if not is_over(self.job_records.live[uid]):
                self.admission.restore(self.job_records.live[uid])
                self._forecasts.opened(self.job_records.live[uid])
                self._follow_gpus(uid, row)
        self.admission.settle()

    # -- what users ask for ---------------------------------------------------------------------------------------

    def submit(
        self, now_s: float, requests: Sequence[JobRequest], user: str, key: str | None
    ) -> tuple[list[Event], list[JobRecord]]:
        """New jobs, all of them or none; with a key that was used before, the jobs it made then."""
        if key is not None and (known := self._submitted_with(user, key)):
            return [], known
        self._refuse(requests, user)
        return self._open(now_s, [self._draft(now_s, request, user, key) for request in requests])

    def check(self, request: JobRequest, user: str) -> None:
        """Raises what `submit` would."""
        self._refuse([request], user)

    def _refuse(self, requests: Sequence[JobRequest], user: str) -> None:
        """Raises if one of the jobs could never run, or if there would be too many."""
        for request in requests:
            self.admission.check(request, user)
            self._check_fits(request)
        for name in {name for request in requests for name in request.after}:
            self._check_dependency(name, user)
        tasks: Counter[str] = Counter()
        for request in requests:
            tasks[request.queue] += max(1, len(request.array))
        for queue, count in tasks.items():
            self.admission.check_room(queue, count)
        has, limit = self.job_records.of_user[user], self._limits.jobs_per_user
        if has + tasks.total() > limit:
            raise LimitError(f"{user} has {has} jobs that have not ended and may have {limit}; wait, or cancel some")

    def _submitted_with(self, user: str, key: str) -> list[JobRecord]:
        """The jobs of an earlier submission as they are now, in order."""
        known = {record.uid: record for record in self._store.by_idempotency_key(user, key)}
        known |= {uid: self.job_records.live[uid] for uid in self.job_records.of_key.get((user, key), ())}
        return [known[uid] for uid in sorted(known, key=_number_and_index)]

    def _draft(self, now_s: float, request: JobRequest, user: str, key: str | None) -> JobRecord:
        believed = record_fields(self.forecast(request, user), request.gpu_memory, request.gpu_util)
        return JobRecord(
            uid="", user=user, request=request, submitted_at=self._clock.unix(now_s), steps=request.steps,
            idempotency_key=key, **believed,  # type: ignore[arg-type]
        )  # fmt: skip

    def forecast(self, request: JobRequest, user: str) -> Forecast:
        """Forecast run time: declared, the median of earlier runs, predicted, or a default."""
        return self._forecasts.duration(request, user)

    def _check_fits(self, request: JobRequest) -> None:
        nodes = [node for _, node in self.engine.state.nodes.present()]
        key = request.within
        if key and key != ON_ONE_NODE and all(key not in dict(node.labels) for node in nodes):
            raise NotPossibleError(
                f"the job can never run here: its nodes must be within one {key}, and no node has that label"
            )
        if not self.fits(request):
            raise NotPossibleError(
                f"the job can never run here: it asks for {_asks(request)}, and {_offered(request, nodes)}"
            )

    def _check_dependency(self, name: str, user: str) -> None:
        """Refuses to wait for a job, or an array, that is another user's, unknown, or will never have succeeded."""
        record = self.job_records.live.get(name) or self._store.job(name) or self._one(name)
        if record is None or record.user != user:
            raise NotPossibleError(f"there is no job {name!r} to wait for")
        if lost := self._lost.get(name) or self._lost_before(name, record):
            raise NotPossibleError(f"{lost}; a job that waits for it would never start")

    def _lost_before(self, name: str, record: JobRecord) -> str:
        """Which job behind a name had ended without success before this turn, and how; empty is none."""
        failed = record if record.uid == name else self._one(name, _LOST)
        return _told_lost(failed.uid, failed.status) if failed is not None and failed.status in _LOST else ""

    def _one(self, array: str, statuses: Sequence[str] = ()) -> JobRecord | None:
        """One of an array's tasks."""
        return next(iter(self._store.jobs(uids=[array], statuses=statuses, limit=1)), None)

    def fits(self, request: JobRequest) -> bool:
        """Whether the cluster, when it is empty, holds a job."""
        key = tuple(getattr(request, name) for name in FITS_BY)
        if key not in self._fits:
            if len(self._fits) >= MOST_FITS:
                self._fits.clear()
            self._fits[key] = self._fits_empty(request.spec("job", submit_s=0.0, duration_s=1.0))
        return self._fits[key]

    def _fits_empty(self, spec: Any) -> bool:
        state, table = self.engine.state, JobTable()
        table.declare([spec])
        empty = Capacity(state.nodes)
        empty.ignore_drains()
        if not hasattr(self.engine.policy, "feasible"):  # one that has it may cut GPUs otherwise than they are now
            for (node, device), slices in state.capacity.layouts.items():
                empty.repartition(node, device, slices)
        return feasible(self.engine.policy, empty, table.shape_of(0), self.engine.view.placer)

    def _open(self, now_s: float, drafts: Sequence[JobRecord]) -> tuple[list[Event], list[JobRecord]]:
        opened: list[JobRecord] = []
        specs: list[JobSpec] = []
        for draft in drafts:
            tasks = _tasks(self._next_number, draft)
            self._next_number += 1
            opened += tasks
            specs += [self._spec(now_s, draft)] * len(tasks)
        rows = self._declare(opened, specs)
        for record in opened:
            self.job_records.open(record)
            self._forecasts.opened(record)
            self.admission.add(record)
        return [JobSubmitted(now_s, row) for row in rows], opened

    def _declare(self, records: Sequence[JobRecord], specs: Sequence[JobSpec]) -> range:
        """Declares jobs, all at once, each as its spec but under its own id."""
        columns: dict[str, list[Any]] = {
            field.name: [getattr(spec, field.name) for spec in specs] for field in fields(JobSpec)
        }
        return self.engine.state.jobs.declare_columns(columns | {"id": [record.uid for record in records]})

    def _spec(self, now_s: float, record: JobRecord) -> JobSpec:
        deadline = record.request.deadline_s
        return record.request.spec(
            record.uid,
            submit_s=now_s,
            duration_s=Forecast(
                record.duration_s,
                _or_nan(record.duration_low_s),
                _or_nan(record.duration_high_s),
                Source(record.duration_source),
            ),
            deadline_s=math.inf if deadline is None else self._clock.seconds(deadline),
        )

    def cancel(self, now_s: float, uids: Iterable[str], why: str) -> list[Event]:
        """Jobs are cancelled, and those that wait for them with them."""
        return self._cancel(now_s, ((uid, why) for uid in uids))

    def _cancel(self, now_s: float, doomed: Iterable[tuple[str, str]]) -> list[Event]:
        events: list[Event] = []
        left = deque(doomed)
        while left:
            uid, why = left.popleft()
            if uid in self.admission:
                events.append(JobCancelled(now_s, self._row(uid)))
                self.job_records.change(uid, why_ended=why)
                left += self._gone(uid, "cancelled")
        return events

    def hold(self, uids: Iterable[str]) -> None:
        """Users hold jobs back."""
        for uid in uids:
            if uid in self.admission:
                self.admission.hold(uid)

    def release(self, uids: Iterable[str]) -> None:
        """Users let jobs go on."""
        for uid in uids:
            if uid in self.admission:
                self.admission.release(uid)

    def resize(self, uid: str, gpus: int) -> list[Command]:
        """A running elastic job goes on with another number of GPUs, if there is room and its queue has quota."""
        state, job = self.engine.state, self._row(uid)
        shape, held = state.jobs.shape_by_row[job], state.placed.get(job)
        if held is None:
            raise NotPossibleError(f"job {uid} holds no GPUs now; it can be resized while it runs")
        if not shape.min_gpus <= gpus <= shape.max_gpus:
            raise NotPossibleError(f"job {uid} may run on {shape.min_gpus} to {shape.max_gpus} GPUs, not {gpus}")
        if gpus == held.gpus:
            return []
        trial = state.capacity.fork()
        trial.give(held, shape)
        wanted = with_counts(shape, task_counts(held.tasks)) if shape.roles else shape
        placement = self.engine.view.placer(trial, wanted, gpus)
        if placement is None:
            raise NotPossibleError(f"there is no room for job {uid} on {gpus} GPUs now")
        self.admission.resize(uid, gpus * self.job_records.live[uid].request.gpu_frac)
        return [Resize(job, placement)]

    # -- what executors see ---------------------------------------------------------------------------------------

    def observed(self, seen: AttemptObserved) -> None:
        """Enters what was seen of an attempt in the books; to be called before the engine takes it in."""
        record = self.job_records.live.get(seen.job)
        if seen.phase is Phase.RUNNING and record is not None:
            if record.status == "starting" and record.attempts == seen.attempt:
                self.job_records.attempt_started(seen, record.placement)
            elif seen.attempt == record.attempts:
                self.job_records.progressed(seen)
                self._paces.note(seen)
        elif seen.phase in OVER:
            if seen.phase is Phase.SUCCEEDED:
                self.job_records.progressed(seen)
            if seen.attempt == (record.attempts if record is not None else seen.attempt):
                self._paces.forget(seen.job)
            if seen.details.started_s is not None and (place := self._open_place(seen)) is not None:
                self.job_records.attempt_ended(seen, place, cancelled=self._is_cancelled(seen))

    def _is_cancelled(self, seen: AttemptObserved) -> bool:
        """Whether an attempt was stopped because its job was cancelled, and not because it lost its node."""
        if seen.phase is not Phase.STOPPED:
            return False
        record = self.job_records.live.get(seen.job) or self._store.job(seen.job)
        return record is not None and record.status == "cancelled"

    def _open_place(self, seen: AttemptObserved) -> str | None:
        """Where an attempt that is over was; None if that it is over is known already, as after a crash."""
        if (place := self.job_records.place_of(seen.job, seen.attempt)) is not None:
            return place
        known = next((each for each in self._store.attempts(seen.job) if each.number == seen.attempt), None)
        if known is None:
            return None if seen.job in self.job_records.live else ""
        return known.placement if known.ended_at is None else None

    def outcomes(self, now_s: float, events: Iterable[Event]) -> list[Event]:
        """What follows from what has happened: jobs that wait for one that failed are cancelled."""
        follows: list[Event] = []
        ids = self.engine.state.jobs.ids
        for event in events:
            if isinstance(event, JobFinished):
                uid = ids[event.job]
                follows += self._forecasts.learn(self.engine.state, event, self.job_records.live[uid])
                self._gone(uid, "succeeded")
            elif isinstance(event, JobFailed) and not event.will_retry:
                self.job_records.change(ids[event.job], why_ended=event.cause)
                follows += self._cancel(now_s, self._gone(ids[event.job], "failed"))
            elif isinstance(event, StartRefused):
                self._refusals[ids[event.job]] = event.cause
        return follows

    def _gone(self, uid: str, status: str) -> list[tuple[str, str]]:
        """A job has ended; those that wait for what will never be, each with the reason."""
        self._paces.forget(uid)
        self._refusals.pop(uid, None)
        self._forecasts.closed(self.job_records.live[uid])
        if status in _LOST:
            self._lost[uid] = self._lost[uid.partition("-")[0]] = _told_lost(uid, status)
        return self.admission.ended(uid, succeeded=status == "succeeded")

    def revisions(self, now_s: float) -> list[Event]:
        """Run times that turn out other than believed."""
        events: list[Event] = []
        for uid, duration_s in self._paces.surprises(now_s, self.engine.state):
            if uid in self.job_records.live:
                events.append(JobRevised(now_s, self._row(uid), duration_s=duration_s))
        return events

    def utilizations(self, now_s: float, gpu_util_frac: Mapping[str, float]) -> list[Event]:
        """Utilizations that were seen."""
        return [
            JobRevised(now_s, self._row(uid), gpu_util_frac=frac)
            for uid, frac in gpu_util_frac.items()
            if uid in self.admission
        ]

    def admit(self, now_s: float) -> list[Event]:
        """Who enters the line and who leaves it, after all that has happened."""
        self.admission.settle()
        events: list[Event] = []
        on_hold = self.engine.state.on_hold
        for uid in self.admission.touched():
            job, causes = self._row(uid), sorted(self.admission.causes(uid))
            text = ",".join(causes)
            if text != self.job_records.live[uid].held:
                self.job_records.change(uid, held=text)
            if causes and job not in on_hold:
                events.append(JobHeld(now_s, job, text))
            elif not causes and job in on_hold:
                events.append(JobReleased(now_s, job))
        return events

    def follow(self, records: Sequence[Event | Command]) -> bool:
        """Brings the books in step with what the engine has done; whether other jobs may be let into the line now."""
        state = self.engine.state
        rows: dict[int, None] = {}
        has_other_gpus = False
        if any(isinstance(each, NodeEvent) for each in records):  # who was on which node is for the engine to know
            live = (self._row(uid) for uid in self.job_records.live)
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
        self._lost.clear()
        return has_other_gpus

    def nodes_changed(self) -> None:
        """Forgets which jobs fit: that depends on the nodes."""
        self._fits.clear()

    def _follow_gpus(self, uid: str, row: int) -> None:
        """Tells admission how many GPUs a job holds."""
        if uid not in self.admission:
            return
        placement = self.engine.state.placed.get(row)
        if placement is None:
            self.admission.displaced(uid)
        else:
            self.admission.placed(uid, placement.gpus * self.job_records.live[uid].request.gpu_frac)

    # -- what is known --------------------------------------------------------------------------------------------

    def reason(self, uid: str) -> Reason | None:
        """Why a job waits, with times from now; None if it does not."""
        if uid not in self.admission:
            return None
        reason = self.admission.reason(uid) or self.engine.reason(self._row(uid))
        if reason is None:
            return None
        if reason.code is Why.BACK_OFF:
            reason = Reason(reason.code, {**reason.numbers, "cause": self._refusals.get(uid, "")})
        return from_now(reason, self._clock.now_s())

    # -- names ----------------------------------------------------------------------------------------------------

    def _row(self, uid: str) -> int:
        return self.engine.state.jobs.row_of[uid]


class _Mould(Generic[Record]):
    """Makes copies of a record with slots that differ in some fields, fast: what was checked is not checked again."""

    def __init__(self, record: Record, *varying: str) -> None:
        self._kind: type[Record] = type(record)
        names = [field.name for field in fields(record)]  # type: ignore[arg-type]
        self._same = [(self._setter(name), getattr(record, name)) for name in names if name not in varying]
        self._varying = [self._setter(name) for name in varying]

    def _setter(self, name: str) -> Callable[[Record, object], None]:
        setter: Callable[[Record, object], None] = getattr(self._kind, name).__set__
        return setter

    def cast(self, *values: object) -> Record:
        """A copy with these values of the fields that differ."""
        made = object.__new__(self._kind)
        for put, value in self._same:
            put(made, value)
        for put, value in zip(self._varying, values, strict=True):
            put(made, value)
        return made


def _tasks(number: int, draft: JobRecord) -> list[JobRecord]:
    """The job that a draft with this number becomes, or the tasks of its array."""
    if not draft.request.array:
        return [replace(draft, uid=str(number))]
    request, record = _Mould(draft.request, "array"), _Mould(draft, "uid", "request")
    return [record.cast(f"{number}-{index}", request.cast((index,))) for index in draft.request.array]


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _told_lost(uid: str, status: str) -> str:
    return f"job {uid} {'was' if status == 'cancelled' else 'has'} {status}"


def _number_and_index(uid: str) -> tuple[int, int]:
    number, _, index = uid.partition("-")
    return int(number), int(index or -1)


def _gpus(engine: Engine) -> float:
    return float(engine.state.nodes.total_gpus)


def _asks(request: JobRequest) -> str:
    kinds = f" of type {' or '.join(request.gpu_types)}" if request.gpu_types else ""
    memory = f" with {format_bytes(request.gpu_memory_bytes)} each" if request.gpu_memory_bytes else ""
    host = f", {request.cpus:g} CPUs" if request.cpus else ""
    host += f", {format_bytes(request.memory_bytes)} of memory" if request.memory_bytes else ""
    held = sharing_only(request.sharing)
    roles = f", as {describe_roles(request.roles)}" if request.roles else ""
    where = f", on nodes with {describe_labels(request.require)}" if request.require else ""
    where += f", within one {request.within}" if request.within else ""
    return f"{request.gpus} GPU{'' if request.gpus == 1 else 's'}{kinds}{memory}{host}{roles}{held}{where}"


def _offered(request: JobRequest, nodes: Sequence[NodeSpec]) -> str:
    """What there is on the nodes with the labels that a job requires, of what it asks for."""
    labelled = [node for node in nodes if all(dict(node.labels).get(key) in values for key, values in request.require)]
    if not labelled:
        return f"no node has {describe_labels(request.require)}" if request.require else "there are no nodes"
    return f"there are {', '.join(_node(request, node) for node in labelled)}"


def _node(request: JobRequest, node: NodeSpec) -> str:
    asked: Sequence[JobRequest | Role] = (request, *request.roles)
    more = []
    if request.gpu_memory_bytes and math.isfinite(node.gpu_memory_bytes):
        more.append(f"{format_bytes(node.gpu_memory_bytes)} each")
    if any(each.cpus for each in asked) and math.isfinite(node.cpus):
        more.append(f"{node.cpus:g} CPUs")
    if any(each.memory_bytes for each in asked) and math.isfinite(node.memory_bytes):
        more.append(f"{format_bytes(node.memory_bytes)} of memory")
    if value := dict(node.labels).get(request.within):
        more.append(f"{request.within} {value}")
    gpus = f"{node.gpus} × {node.gpu_type}" if node.gpus else "0 GPUs"
    return gpus + (f" ({', '.join(more)})" if more else "")
