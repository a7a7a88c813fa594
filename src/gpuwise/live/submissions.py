"""New jobs: checked, numbered, declared to the engine and recorded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from gpuwise.core.events import Event, JobSubmitted
from gpuwise.core.job.dependency import Dependency, Until
from gpuwise.core.job.needs import Forecast, Source
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.records import JobRecord, Store
from gpuwise.core.units import format_duration
from gpuwise.engine.engine import Engine
from gpuwise.live.admission import Admission
from gpuwise.live.clock import Clock
from gpuwise.live.feasibility import Feasibility
from gpuwise.live.forecasts import Forecasts, record_fields
from gpuwise.live.inbox import LimitError, NotPossibleError
from gpuwise.live.job_records import JobRecords, how_ended

JOBS_PER_USER = 50_000
UNSUCCESSFUL = ("failed", "cancelled")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What one user may have."""

    jobs_per_user: int = JOBS_PER_USER
    """Jobs that have not ended."""


@dataclass(slots=True)
class Submissions:
    """Accepts new jobs, all of a request or none."""

    store: Store
    clock: Clock
    limits: UserLimits
    records: JobRecords
    admission: Admission
    forecasts: Forecasts
    next_number: int
    feasibility: Feasibility = field(default_factory=Feasibility)
    unsuccessful: dict[str, str] = field(default_factory=dict)
    """How jobs ended in this turn without success; also under their arrays' names."""

    def submit(
        self, engine: Engine, now_s: float, requests: Sequence[JobRequest], user: str, key: str | None
    ) -> tuple[list[Event], list[JobRecord]]:
        """New jobs, all of them or none; with a key that was used before, the jobs it made then."""
        if key is not None and (known := self._submitted_with(user, key)):
            return [], known
        self.check(engine, requests, user)
        return self._add(engine, now_s, [self._draft(now_s, request, user, key) for request in requests])

    def check(self, engine: Engine, requests: Sequence[JobRequest], user: str) -> None:
        """Raises if one of the jobs could never run, or if there would be too many."""
        for request in requests:
            self.check_deadline(self.clock.unix(self.clock.now_s()), request)
            self.admission.quotas.check(request, user)
            self.feasibility.check(engine, request)
        for each in {Dependency.parse(text) for request in requests for text in request.after}:
            self._check_dependency(each, user)
        tasks: Counter[str] = Counter()
        for request in requests:
            tasks[request.queue] += max(1, len(request.array))
        for queue, count in tasks.items():
            self.admission.check_room(queue, count)
        has, limit = self.records.of_user[user], self.limits.jobs_per_user
        if has + tasks.total() > limit:
            raise LimitError(f"{user} has {has} jobs that have not ended and may have {limit}; wait, or cancel some")

    def _submitted_with(self, user: str, key: str) -> list[JobRecord]:
        """The jobs of an earlier submission as they are now, in order."""
        known = {record.uid: record for record in self.store.by_idempotency_key(user, key)}
        known |= {uid: self.records.live[uid] for uid in self.records.of_key.get((user, key), ())}
        return [known[uid] for uid in sorted(known, key=_number_and_index)]

    def check_deadline(self, now_unix: float, request: JobRequest) -> None:
        """Refuses a deadline that is past, or before the job may begin."""
        if request.deadline_s is None:
            return
        if request.deadline_s <= now_unix:
            late = format_duration(now_unix - request.deadline_s)
            when = f"{request.deadline_s:.0f} ({datetime.fromtimestamp(request.deadline_s, UTC):%Y-%m-%d %H:%M} UTC)"
            raise NotPossibleError(f"deadline_s is {when}, which was {late} ago; give a later one")
        if request.begin_s is not None and request.begin_s >= request.deadline_s:
            raise NotPossibleError("the job is to begin after its deadline; give an earlier begin, or a later deadline")

    def _check_dependency(self, dependency: Dependency, user: str) -> None:
        """Refuses to wait for a job, or an array, that is another user's, unknown, or will never end as is wanted."""
        until, name = dependency
        record = self.records.live.get(name) or self.store.job(name) or self._task(name)
        if record is None or record.user != user:
            raise NotPossibleError(f"there is no job {name!r} to wait for")
        ended = self.unsuccessful.get(name) or self._ended_before(name, record)
        if until is Until.OK and ended:
            raise NotPossibleError(f"{ended}; a job that waits for it would never start")
        is_live = name in self.admission or self.admission.has_tasks(name)
        if until is Until.NOT_OK and not ended and not is_live:
            raise NotPossibleError(f"job {name} has succeeded; a job that waits for its failure would never start")

    def _ended_before(self, name: str, record: JobRecord) -> str:
        """Which job behind a name had ended without success before this turn, and how; empty is none."""
        failed = record if record.uid == name else self._task(name, UNSUCCESSFUL)
        if failed is None or failed.status not in UNSUCCESSFUL:
            return ""
        return f"job {failed.uid} {how_ended(failed.status)}"

    def _task(self, array: str, statuses: Sequence[str] = ()) -> JobRecord | None:
        """One of an array's tasks."""
        return next(iter(self.store.jobs(uids=[array], statuses=statuses, limit=1)), None)

    def _draft(self, now_s: float, request: JobRequest, user: str, key: str | None) -> JobRecord:
        forecast = record_fields(self.forecasts.duration(request, user), request.gpu_memory, request.gpu_util)
        return JobRecord(
            uid="", user=user, request=request, submitted_at=self.clock.unix(now_s), steps=request.steps,
            idempotency_key=key, **forecast,  # type: ignore[arg-type]
        )  # fmt: skip

    def _add(self, engine: Engine, now_s: float, drafts: Sequence[JobRecord]) -> tuple[list[Event], list[JobRecord]]:
        added: list[JobRecord] = []
        specs: list[JobSpec] = []
        for draft in drafts:
            tasks = _tasks(self.next_number, draft)
            self.next_number += 1
            added += tasks
            specs += [self._spec(now_s, draft)] * len(tasks)
        rows = _declare(engine, added, specs)
        for record in added:
            self.records.add(record)
            self.forecasts.add(record)
            self.admission.add(record)
        return [JobSubmitted(now_s, row) for row in rows], added

    def _spec(self, now_s: float, record: JobRecord) -> JobSpec:
        deadline = record.request.deadline_s
        low, high = (math.nan if end is None else end for end in (record.duration_low_s, record.duration_high_s))
        return record.request.spec(
            record.uid,
            submit_s=now_s,
            duration_s=Forecast(record.duration_s, low, high, Source(record.duration_source)),
            deadline_s=math.inf if deadline is None else self.clock.seconds(deadline),
        )


def _declare(engine: Engine, records: Sequence[JobRecord], specs: Sequence[JobSpec]) -> range:
    """Declares jobs, all at once, each as its spec but under its own id."""
    columns: dict[str, list[Any]] = {
        each.name: [getattr(spec, each.name) for spec in specs] for each in fields(JobSpec)
    }
    return engine.state.jobs.declare_columns(columns | {"id": [record.uid for record in records]})


class _Template(Generic[Record]):
    """Makes copies of a record with slots that differ in some fields, fast: what was checked is not checked again."""

    def __init__(self, record: Record, *varying: str) -> None:
        self._kind: type[Record] = type(record)
        names = [each.name for each in fields(record)]  # type: ignore[arg-type]
        self._same = [(self._setter(name), getattr(record, name)) for name in names if name not in varying]
        self._varying = [self._setter(name) for name in varying]

    def _setter(self, name: str) -> Callable[[Record, object], None]:
        setter: Callable[[Record, object], None] = getattr(self._kind, name).__set__
        return setter

    def copy(self, *values: object) -> Record:
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
    request, record = _Template(draft.request, "array"), _Template(draft, "uid", "request")
    return [record.copy(f"{number}-{index}", request.copy((index,))) for index in draft.request.array]


def _number_and_index(uid: str) -> tuple[int, int]:
    number, _, index = uid.partition("-")
    return int(number), int(index or -1)
