"""The use cases on jobs: submit, look at, cancel, hold back, resize; who may do that to what, and a note of who did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from gpuwise.core.commands import Reason
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import MAX_ARRAY, JobRequest
from gpuwise.core.records import AttemptRecord, AuditEntry, JobRecord, Role
from gpuwise.live.controller import Controller
from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.intake import JobIntake
from gpuwise.live.job_records import is_over
from gpuwise.service.live.access import Caller
from gpuwise.service.live.estimates import DryRun
from gpuwise.service.live.refusals import NotFoundError
from gpuwise.service.live.threads import Readers, answer


class Foresight(Protocol):
    """Says what would become of a job; may take a while."""

    def dry_run(self, request: JobRequest, user: str) -> DryRun:
        """What would become of a job if it were submitted now."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """Which jobs to list; what is None or empty does not matter."""

    statuses: Sequence[str] = ()
    queue: str | None = None
    name: str | None = None
    user: str | None = None
    uids: Sequence[str] = ()
    before: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """Why a job waits, or what it does instead."""

    job: JobRecord
    reason: Reason | None
    position: int | None
    """Its place in line, from 1; None if it does not stand in line."""

    @property
    def text(self) -> str:
        """The reason for people."""
        if self.reason is not None:
            return str(self.reason)
        if is_over(self.job):
            return f"has {self.job.status}" + (f": {self.job.why_ended}" if self.job.why_ended else "")
        return f"does not wait: it is {self.job.status}"


class Audit:
    """Notes who did what to what."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def note(self, user: str, action: str, target: str, outcome: str = "ok", address: str = "") -> None:
        """Keeps an entry; long ones are cut."""
        entry = AuditEntry(
            at=time.time(), user=user, action=action, target=target[:200], outcome=outcome[:500], address=address
        )
        self._controller.note(entry)

    def by(self, caller: Caller, action: str, target: str, outcome: str = "ok") -> None:
        """Keeps an entry about a known caller."""
        self.note(caller.user, action, target, outcome, caller.address)


class Jobs:
    """Jobs as a caller may see and touch them."""

    def __init__(
        self, controller: Controller, readers: Readers, thinkers: Readers, audit: Audit, foresight: Foresight
    ) -> None:
        self._controller = controller
        self._store = controller.store
        self._readers = readers
        self._thinkers = thinkers
        self._audit = audit
        self._foresight = foresight

    # -- look -----------------------------------------------------------------------------------------------------

    async def job(self, caller: Caller, uid: str) -> JobRecord:
        """One job; one of somebody else is not found."""
        record = self._controller.live(uid) or await self._readers.run(self._store.job, uid)
        if record is None or not caller.principal.may_see(record):
            raise NotFoundError(f"there is no job {uid!r}")
        return record

    async def jobs(self, caller: Caller, query: Query) -> list[JobRecord]:
        """Jobs, newest first, as they are now."""
        user = query.user
        if caller.principal.role is not Role.ADMIN:
            if user not in (None, caller.user):
                return []
            user = caller.user
        found = await self._readers.run(
            self._store.jobs,
            user=user,
            statuses=query.statuses,
            queue=query.queue,
            name=query.name,
            uids=query.uids,
            before=query.before,
            limit=query.limit,
        )
        newest = [self._controller.live(record.uid) or record for record in found]
        return [record for record in newest if not query.statuses or record.status in query.statuses]

    async def attempts(self, caller: Caller, uid: str) -> list[AttemptRecord]:
        """A job's launches, first one first."""
        await self.job(caller, uid)
        return await self._readers.run(self._store.attempts, uid)

    async def why(self, caller: Caller, uid: str) -> WhyWaiting:
        """Why a job waits."""
        record = await self.job(caller, uid)
        if is_over(record):
            return WhyWaiting(record, None, None)
        reason, position = await answer(self._controller.ask(lambda intake: _waiting(intake, uid)))
        return WhyWaiting(self._controller.live(uid) or record, reason, position)

    async def dry_run(self, caller: Caller, request: JobRequest) -> DryRun:
        """What would become of a job; nothing is submitted."""
        return await self._thinkers.run(self._foresight.dry_run, request, caller.user)

    # -- touch ----------------------------------------------------------------------------------------------------

    async def submit(self, caller: Caller, request: JobRequest, key: str | None) -> list[JobRecord]:
        """New jobs; sent again with the same key, the jobs of the first time."""
        target = request.name or request.command[0]
        try:
            records = await answer(self._controller.submit([request], caller.user, key))
            if key is not None and not _asked_for(records, request):
                raise NotPossibleError(f"the idempotency key {key!r} was used for another job; use a new one")
        except GpuwiseError as error:
            self._audit.by(caller, "submit", target, f"refused: {error}")
            raise
        self._audit.by(caller, "submit", _names(records))
        return records

    async def cancel(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Takes a job, or all tasks of an array, back."""
        return await self._touch(caller, "cancel", uid, lambda uids: self._controller.cancel(uids, caller.user))

    async def suspend(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Holds a job or an array back until it is resumed."""
        return await self._touch(caller, "suspend", uid, self._controller.suspend)

    async def resume(self, caller: Caller, uid: str) -> list[JobRecord]:
        """Lets a job or an array go on."""
        return await self._touch(caller, "resume", uid, self._controller.resume)

    async def resize(self, caller: Caller, uid: str, gpus: int) -> list[JobRecord]:
        """Runs an elastic job on with another number of GPUs."""
        return await self._touch(
            caller, f"resize to {gpus}", uid, lambda uids: self._controller.resize(uids[0], gpus), alone=True
        )

    async def _touch(
        self,
        caller: Caller,
        action: str,
        uid: str,
        act: Callable[[list[str]], Future[None]],
        *,
        alone: bool = False,
    ) -> list[JobRecord]:
        """Does something to the jobs behind an id that have not ended, and notes that, or why not."""
        try:
            records = [await self.job(caller, uid)] if alone else await self._behind(caller, uid)
            live = [record.uid for record in records if not is_over(record)]
            if not live:
                raise NotPossibleError(f"job {uid} has ended already ({records[0].status})")
            await answer(act(live))
        except GpuwiseError as error:
            self._audit.by(caller, action, uid, f"refused: {error}")
            raise
        self._audit.by(caller, action, uid)
        return await self._again(uid, records)

    async def _behind(self, caller: Caller, uid: str) -> list[JobRecord]:
        """The job with an id, or the tasks of the array with it, in order."""
        live = self._controller.live(uid)
        found = [live] if live else await self._readers.run(self._store.jobs, uids=[uid], limit=MAX_ARRAY)
        seen = [self._controller.live(each.uid) or each for each in found if caller.principal.may_see(each)]
        if not seen:
            raise NotFoundError(f"there is no job {uid!r}")
        return seen

    async def _again(self, uid: str, records: Sequence[JobRecord]) -> list[JobRecord]:
        """The jobs behind an id as they are now."""
        live = self._controller.live
        some_ended = any(live(record.uid) is None for record in records)
        kept = await self._readers.run(self._store.jobs, uids=[uid], limit=MAX_ARRAY) if some_ended else []
        by_uid = {record.uid: record for record in kept}
        return [live(each.uid) or by_uid.get(each.uid, each) for each in records]

    def is_over(self, uid: str) -> bool:
        """Whether a job has ended, for certain; reads the store."""
        if self._controller.live(uid) is not None:
            return False
        record = self._store.job(uid)
        return record is None or is_over(record)


def _waiting(intake: JobIntake, uid: str) -> tuple[Reason | None, int | None]:
    """Why a job waits and where in line, as the desk knows it."""
    state = intake.engine.state
    row = state.jobs.row_of.get(uid)
    if row is None or uid not in intake.admission:
        return None, None
    reason = intake.reason(uid)
    if row not in state.waiting:
        return reason, None
    return reason, next(place for place, job in enumerate(state.waiting, start=1) if job == row)


def _asked_for(records: Sequence[JobRecord], request: JobRequest) -> bool:
    """Whether these are the jobs that a request asks for."""
    indexes = sorted(index for record in records for index in record.request.array)
    kept = replace(records[0].request, array=request.array)
    return indexes == sorted(request.array) and kept.to_json() == request.to_json()


def _names(records: Sequence[JobRecord]) -> str:
    first = records[0].uid
    return first if len(records) == 1 else f"{first.partition('-')[0]} ({len(records)} tasks)"
