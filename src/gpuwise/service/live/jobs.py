"""The use cases on jobs: submit, list, show, cancel, suspend, resume, resize; each checked and recorded."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpuwise.core.commands import Reason
from gpuwise.core.job.needs import Source
from gpuwise.core.job.request import MAX_ARRAY, JobRequest
from gpuwise.core.notification import Notification
from gpuwise.core.records import AttemptRecord, JobRecord, UserRole
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.live.controller import Controller
from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.intake import JobIntake
from gpuwise.live.job_records import how_ended, is_over
from gpuwise.live.local.accounts import Account, Accounts
from gpuwise.service.live.access import Caller
from gpuwise.service.live.audit import Audit
from gpuwise.service.live.errors import InvalidError, NoAnswerError, NotFoundError
from gpuwise.service.live.estimates import NONE, DryRun, Estimates
from gpuwise.service.live.notify.notifier import Notifier
from gpuwise.service.live.threads import WorkerPool, result_of


@dataclass(frozen=True, slots=True)
class Query:
    """Which jobs to list; a field that is None or empty matches all."""

    statuses: Sequence[str] = ()
    queue: str | None = None
    name: str | None = None
    user: str | None = None
    uids: Sequence[str] = ()
    before: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A job that has GPUs for which another job waits."""

    uid: str
    user: str
    gpus: float
    placement: str
    finish_at: float | None
    """When it is estimated to end; None is not known."""
    is_guess: bool
    """Whether its run time is only assumed."""


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """Why a job waits, or what it does instead."""

    job: JobRecord
    reason: Reason | None
    position: int | None
    """Its position in the queue, from 1; None if it is not in the queue."""
    users: Sequence[GpuUser] = ()
    """Jobs that have GPUs it could use, those that are estimated to end first before others."""

    @property
    def text(self) -> str:
        """The reason for people."""
        if self.reason is not None:
            return str(self.reason)
        if is_over(self.job):
            return how_ended(self.job.status) + (f": {self.job.why_ended}" if self.job.why_ended else "")
        return f"does not wait: it is {self.job.status}"


class Jobs:
    """Jobs as a caller may see and change them."""

    def __init__(
        self,
        controller: Controller,
        workers: WorkerPool,
        estimators: WorkerPool,
        audit: Audit,
        estimates: Estimates,
        notifier: Notifier,
        accounts: Accounts | None = None,
    ) -> None:
        self._controller = controller
        self._store = controller.store
        self._workers = workers
        self._estimators = estimators
        self._audit = audit
        self._estimates = estimates
        self._notifier = notifier
        self._accounts = accounts

    # -- reading --------------------------------------------------------------------------------------------------

    async def any_job(self, uid: str) -> JobRecord:
        """One job, of any user; what others may not see of it is left out by who shows it."""
        record = self._controller.live(uid) or await self._workers.run(self._store.job, uid)
        if record is None:
            raise NotFoundError(f"there is no job {uid!r}")
        return record

    async def job(self, caller: Caller, uid: str) -> JobRecord:
        """One job, with all its details: one's own, or an administrator asks."""
        record = await self.any_job(uid)
        if not caller.principal.may_see(record):
            raise NotFoundError(_not_yours(uid))
        return record

    async def jobs(self, caller: Caller, query: Query) -> list[JobRecord]:
        """Jobs of all users, newest first, as they are now; by name one's own only, since names are details."""
        if query.name is not None and caller.principal.role is not UserRole.ADMIN:
            if query.user not in (None, caller.user):
                return []
            query = replace(query, user=caller.user)
        found = await self._workers.run(self._store.jobs, **asdict(query))
        newest = [self._controller.live(record.uid) or record for record in found]
        return [record for record in newest if not query.statuses or record.status in query.statuses]

    async def attempts(self, caller: Caller, uid: str) -> list[AttemptRecord]:
        """A job's launches, oldest first."""
        await self.job(caller, uid)
        return await self._workers.run(self._store.attempts, uid)

    async def unsent(self, caller: Caller, record: JobRecord) -> list[Notification]:
        """The notifications of a job, or of its array, that were not sent."""
        if not record.request.notify or not caller.principal.may_see(record):
            return []
        return await self._workers.run(self._store.notifications, record.uid.partition("-")[0])

    async def account(self, caller: Caller) -> Account | None:
        """The account that the caller's jobs run as; None is that of the service."""
        return await self._workers.run(self._accounts.of, caller.user) if self._accounts is not None else None

    async def why(self, caller: Caller, uid: str) -> WhyWaiting:
        """Why a job waits."""
        record = await self.job(caller, uid)
        if is_over(record):
            return WhyWaiting(record, None, None)
        reason, position = await result_of(self._controller.ask(lambda intake: _reason_and_position(intake, uid)))
        users = await self._gpu_users(uid) if reason is not None and position is not None else ()
        return WhyWaiting(self._controller.live(uid) or record, reason, position, users)

    async def _gpu_users(self, uid: str) -> list[GpuUser]:
        """The jobs that have GPUs which a job could use, with the queue's estimates of their ends."""
        placed = await result_of(self._controller.ask(lambda intake: _placed_where(intake, uid)))
        try:
            estimates = await self._estimators.run(self._estimates.queue)
        except NoAnswerError:
            estimates = NONE
        found = []
        for each, gpus in placed:
            if (record := self._controller.live(each)) is not None:
                finish_at = estimates.of(record).finish_at
                guess = record.duration_source == Source.DEFAULT
                found.append(GpuUser(each, record.user, gpus, record.placement, finish_at, guess))
        return sorted(found, key=lambda each: (math.inf if each.finish_at is None else each.finish_at, each.uid))

    async def dry_run(self, caller: Caller, request: JobRequest) -> DryRun:
        """The forecast for a job; nothing is submitted."""
        self._notifier.check(request)
        await self._workers.run(self._check_place, request, caller.user)
        return await self._estimators.run(self._estimates.dry_run, request, caller.user)

    def _check_place(self, request: JobRequest, user: str) -> None:
        """Refuses a job that could not run on this machine: for want of an account, or of its working folder.

        What an account may enter only that account can tell, so a job of another account finds out when it starts.
        """
        if self._accounts is None:
            _check_folder(request)
        else:
            self._accounts.of(user)

    def is_over(self, uid: str) -> bool:
        """Whether a job has ended, for certain; reads the store."""
        if self._controller.live(uid) is not None:
            return False
        record = self._store.job(uid)
        return record is None or is_over(record)

    # -- changing -------------------------------------------------------------------------------------------------

    async def submit(self, caller: Caller, request: JobRequest, key: str | None) -> list[JobRecord]:
        """Submits a job or an array; sent again with the same key, it returns the jobs of the first time."""

        async def submitted() -> list[JobRecord]:
            self._notifier.check(request)
            await self._workers.run(self._check_place, request, caller.user)
            records = await result_of(self._controller.submit([request], caller.user, key))
            if key is not None and not _is_request_of(records, request):
                raise NotPossibleError(f"the idempotency key {key!r} was used for another job; use a new one")
            return records

        return await self._audit.recorded(caller, "submit", request.name or request.command[0], submitted(), _ids)

    async def cancel(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Cancels a job, or all tasks of an array."""
        return await self._change(caller, "cancel", uid, lambda uids: self._controller.cancel(uids, caller.user))

    async def suspend(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Puts a job or an array on hold until it is resumed."""
        return await self._change(caller, "suspend", uid, self._controller.suspend)

    async def resume(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Ends a suspension."""
        return await self._change(caller, "resume", uid, self._controller.resume)

    async def hold(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Puts a job, or the tasks of an array, on hold that have not started."""
        return await self._change(caller, "hold", uid, self._controller.hold)

    async def requeue(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Stops a job, or all tasks of an array, and puts it into the queue again."""
        return await self._change(caller, "requeue", uid, lambda uids: self._controller.requeue(uids, caller.user))

    async def update(self, caller: Caller, uid: str, wanted: Mapping[str, Any]) -> list[JobRecord]:
        """Changes priority, time limit or deadline of a job, or of all tasks of an array."""
        if not wanted:
            raise InvalidError("nothing to change; give priority, time_limit_s or deadline_s")
        action = "update " + ", ".join(f"{name} to {value}" for name, value in wanted.items())
        return await self._change(caller, action, uid, lambda uids: self._controller.update(uids, wanted))

    async def resize(self, caller: Caller, uid: str, gpus: int) -> list[JobRecord]:
        """Changes the number of GPUs of an elastic job."""
        return await self._change(
            caller, f"resize to {gpus}", uid, lambda uids: self._controller.resize(uids[0], gpus), single=True
        )

    async def _change(
        self, caller: Caller, action: str, uid: str, change: Callable[[list[str]], Future[None]], single: bool = False
    ) -> list[JobRecord]:
        """Changes the jobs with an id that have not ended; records that, or why not."""

        async def changed() -> list[JobRecord]:
            records = [await self.job(caller, uid)] if single else await self._with_id(caller, uid)
            live = [record.uid for record in records if not is_over(record)]
            if not live:
                raise NotPossibleError(f"job {uid} has ended already ({records[0].status})")
            await result_of(change(live))
            return records

        return await self._refreshed(uid, await self._audit.recorded(caller, action, uid, changed()))

    async def _with_id(self, caller: Caller, uid: str) -> list[JobRecord]:
        """The job with an id, or the tasks of the array with it, in order."""
        live = self._controller.live(uid)
        found = [live] if live else await self._workers.run(self._store.jobs, uids=[uid], limit=MAX_ARRAY)
        seen = [self._controller.live(each.uid) or each for each in found if caller.principal.may_see(each)]
        if not seen:
            raise NotFoundError(_not_yours(uid) if found else f"there is no job {uid!r}")
        return seen

    async def _refreshed(self, uid: str, records: Sequence[JobRecord]) -> list[JobRecord]:
        """The jobs with an id as they are now."""
        live = self._controller.live
        some_ended = any(live(record.uid) is None for record in records)
        stored = await self._workers.run(self._store.jobs, uids=[uid], limit=MAX_ARRAY) if some_ended else []
        by_uid = {record.uid: record for record in stored}
        return [live(each.uid) or by_uid.get(each.uid, each) for each in records]


def _reason_and_position(intake: JobIntake, uid: str) -> tuple[Reason | None, int | None]:
    """Why a job waits, and its position in the queue."""
    state = intake.engine.state
    row = state.jobs.row_of.get(uid)
    if row is None or uid not in intake.admission:
        return None, None
    reason = intake.reason(uid)
    if row not in state.waiting:
        return reason, None
    return reason, next(place for place, job in enumerate(state.waiting, start=1) if job == row)


def _placed_where(intake: JobIntake, uid: str) -> list[tuple[str, float]]:
    """The jobs on nodes that a job may use, each with its GPUs."""
    state = intake.engine.state
    row = state.jobs.row_of.get(uid)
    if row is None:
        return []
    shape = state.jobs.shape_of(row)
    types, allowed = state.capacity.types_for(shape), state.capacity.required(shape)
    usable = {node for node, _ in state.nodes.present() if state.nodes.type_of[node] in types and allowed >> node & 1}
    return [
        (state.jobs.ids[job], placement.gpus * placement.milli / WHOLE_GPU_MILLI)
        for job, placement in state.placed.items()
        if placement.gpus and usable.intersection(placement.nodes)
    ]


def _not_yours(uid: str) -> str:
    return f"job {uid} is another user's; its details are for its user and administrators"


def _check_folder(request: JobRequest) -> None:
    """Refuses a working folder that does not exist here."""
    if request.workdir and not os.path.isdir(request.workdir):
        kind = "is not a folder" if os.path.exists(request.workdir) else "does not exist"
        raise NotPossibleError(f"workdir is {request.workdir!r}, which {kind} on the machine that runs the job")


def _is_request_of(records: Sequence[JobRecord], request: JobRequest) -> bool:
    """Whether these are the jobs that a request asks for."""
    indexes = sorted(index for record in records for index in record.request.array)
    stored = replace(records[0].request, array=request.array)
    return indexes == sorted(request.array) and stored.to_json() == request.to_json()


def _ids(records: Sequence[JobRecord]) -> str:
    first = records[0].uid
    return first if len(records) == 1 else f"{first.partition('-')[0]} ({len(records)} tasks)"
