"""The store on SQL: SQLite in a file, or PostgreSQL by its URL."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Executable, and_, delete, func, select, text

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.notification import Notification
from gpuwise.core.records import (
    RESTORE,
    AttemptRecord,
    AttemptUse,
    AuditEntry,
    Batch,
    EndedPage,
    JobRecord,
    JournalLine,
    QueueRecord,
    Snapshot,
    Store,
    StoreError,
    TokenRecord,
)
from gpuwise.core.search import EndedQuery
from gpuwise.store.database import Database
from gpuwise.store.ended import counts_by_array, ended_page
from gpuwise.store.errors import located
from gpuwise.store.migrations import migrate
from gpuwise.store.place import locate
from gpuwise.store.prune import prune_jobs, prune_lines, prune_tokens
from gpuwise.store.rows import (
    RecordReader,
    Row,
    attempt_record,
    attempt_use,
    check_texts,
    command_digest,
    job_record,
    job_row,
    journal_line,
    notification,
    numbered_audit_entry,
    place_of,
    plain_rows,
    queue_record,
    queue_row,
    run_time,
    storable,
    token_record,
    token_row,
)
from gpuwise.store.schema import (
    LIVE_STATUSES,
    SUCCEEDED,
    attempts,
    audit,
    jobs,
    journal,
    meta,
    notifications,
    queues,
    snapshots,
    tokens,
)
from gpuwise.store.statements import SELECT_JOBS, WriteStatements, newest_jobs, next_notification

MAX_UIDS = 10_000
"""The most jobs that may be listed by id at once."""
_LAST_NUMBER = "store.last_job_number"
"""The setting with the highest job number, for when the job itself is deleted."""
_LARGEST = 2**63 - 1


def open_store(place: str | os.PathLike[str]) -> SqlStore:
    """Opens a store: a file, created if it does not exist, or ``postgresql://USER:PASSWORD@HOST/DATABASE``."""
    database = Database(locate(place))
    try:
        migrate(database)
        database.use_write_ahead_log()
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


class SqlStore(Store):
    """Stores records in a database. It is thread-safe; a write is on disk when the call returns."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writes = WriteStatements.for_dialect(database.dialect)
        self._records = RecordReader(self.place)
        self.unreadable = self._records.unreadable

    def __repr__(self) -> str:
        return f"SqlStore({self.place!r})"

    @property
    def place(self) -> str:
        """Where the store is, without a password."""
        return self.database.place

    def claim(self) -> None:
        """Locks the database against other services; a `StoreError` if one uses it already."""
        self.database.claim()

    def close(self) -> None:
        """Closes the database."""
        self.database.close()

    def meta(self, name: str, default: str) -> str:
        """A setting of the service; written with ``default`` if it does not exist."""
        found = self._setting(name)
        if found is None:
            self._put((self._writes.new_meta, [(storable(name), storable(default))]))
            found = self._setting(name)  # which another process may have written in between
        return default if found is None else found

    def number(self, name: str) -> float:
        """A setting that is a number; 0 if it does not exist."""
        found = self._setting(name) or "0"
        try:
            return float(found)
        except ValueError:
            at = f"table meta: {name} is {found[:60]!r}; it must be a number"
            raise StoreError(f"store {self.place}: {at}; {RESTORE}") from None

    def put_meta(self, name: str, value: str) -> None:
        """Changes a setting of the service."""
        self._put((self._writes.meta, [(storable(name), storable(value))]))

    def skip_job_numbers(self, last: int) -> None:
        """Gives no job a number up to this one any more."""
        self.put_meta(_LAST_NUMBER, str(max(last, self.last_job_number())))

    def commit(self, batch: Batch) -> None:
        """Writes a batch in one transaction and returns when it is on disk."""
        writes = self._writes
        work: list[tuple[str, list[Row]]] = []
        if batch.jobs:
            work.append((writes.job, [job_row(job) for job in batch.jobs]))
        if batch.attempts:
            work.append((writes.attempt, plain_rows(batch.attempts)))
        if batch.lines:
            work.append((writes.line, plain_rows(batch.lines)))
        if batch.audit:
            work.append((writes.audit, plain_rows(batch.audit)))
        if batch.notifications:
            work.append((writes.notification, plain_rows(batch.notifications)))
        if batch.snapshot:
            work.append((writes.snapshot, plain_rows([batch.snapshot])))
            work.append((writes.delete_snapshots, [(batch.snapshot.sequence,)]))
        if work:
            self._put(*work)

    def recover(self) -> tuple[Snapshot | None, list[JournalLine]]:
        """The last snapshot and the lines after it."""
        last = self.database.read(select(snapshots).order_by(snapshots.c.sequence.desc()).limit(1))
        snapshot = Snapshot(*last[0]) if last else None
        after = snapshot.sequence if snapshot else 0
        lines = self.database.read(select(journal).where(journal.c.sequence > after).order_by(journal.c.sequence))
        for table, row in (*(("snapshots", each) for each in last), *(("journal", each) for each in lines)):
            try:
                check_texts(row)
            except ValueError as error:
                at = f"table {table}, sequence {row[0]}"
                raise StoreError(f"store {self.place}: {at} cannot be read ({error}); {RESTORE}") from None
        return snapshot, [JournalLine(*row) for row in lines]

    def live_jobs(self) -> list[JobRecord]:
        """Jobs that have not ended, in the order they were submitted."""
        live = SELECT_JOBS.where(jobs.c.status.in_(LIVE_STATUSES)).order_by(jobs.c.number, jobs.c.array_index)
        return self._jobs(live)

    def last_job_number(self) -> int:
        """The highest number of a job or array so far; 0 is none."""
        return max(int(self.number(_LAST_NUMBER)), self._value(select(func.max(jobs.c.number))) or 0)

    def job(self, uid: str) -> JobRecord | None:
        """One job."""
        found = self.database.read(SELECT_JOBS.where(jobs.c.uid == storable(uid)))
        with located(self.place):
            return job_record(found[0]) if found else None

    def jobs(
        self,
        *,
        user: str | None = None,
        statuses: Sequence[str] = (),
        queue: str | None = None,
        name: str | None = None,
        uids: Sequence[str] = (),
        before: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        """Jobs, newest first; an array's id in ``uids`` means all its tasks; ``before`` is a uid, for the next page."""
        if len(uids) > MAX_UIDS:
            raise GpuwiseError(f"uids has {len(uids)} ids; it may have up to {MAX_UIDS}")
        start = None if before is None else place_of(before)
        query = partial(newest_jobs, user=user, statuses=statuses, queue=queue, name=name, uids=uids)

        def page(last: Row | None, size: int) -> Sequence[Any]:
            return self.database.read(query(before=start if last is None else tuple(last[-2:]), limit=size))

        return self._records.read_page(page, _clamped(limit), job_record, "job")

    def ended_page(self, query: EndedQuery) -> EndedPage:
        """A page of the jobs that have ended, searched and sorted."""
        return ended_page(self.database.read, self._jobs, query)

    def counts_by_array(self, numbers: Sequence[str]) -> dict[str, dict[str, int]]:
        """Of each array, the number of its ended tasks by status."""
        return counts_by_array(self.database.read, numbers)

    def count_live(self, user: str) -> int:
        """The number of a user's jobs that have not ended."""
        live = jobs.c.status.in_(LIVE_STATUSES)
        return int(self._value(select(func.count()).where(jobs.c.user == storable(user), live)))

    def by_idempotency_key(self, user: str, key: str) -> list[JobRecord]:
        """The jobs that an earlier submission with this key made."""
        same = (jobs.c.user == storable(user), jobs.c.idempotency_key == storable(key))
        return self._jobs(SELECT_JOBS.where(*same).order_by(jobs.c.array_index))

    def run_times(self, request: JobRequest, user: str, limit: int = 20) -> list[tuple[float, float]]:
        """Run time (s) and peak memory (bytes, 0 is unknown) of a user's last successes with the same command."""
        same = (jobs.c.user == storable(user), jobs.c.command_digest == command_digest(request), text(SUCCEEDED))
        timed = (jobs.c.started_at.is_not(None), jobs.c.ended_at.is_not(None))
        last = SELECT_JOBS.where(*same, *timed).order_by(jobs.c.ended_at.desc()).limit(_clamped(limit))
        return [(run_time(job), job.peak_memory_bytes or 0.0) for job in self._jobs(last)]

    def attempts(self, uid: str) -> list[AttemptRecord]:
        """The launches of a job, oldest first."""
        query = select(attempts).where(attempts.c.uid == storable(uid)).order_by(attempts.c.number)
        return self._records.read(self.database.read(query), attempt_record, "attempt of job")

    def attempts_between(self, since: float, until: float) -> list[AttemptUse]:
        """The launches, of all jobs, that ran at some time between two Unix times."""
        own = (attempts.c.placement, attempts.c.started_at, attempts.c.ended_at)
        of_job = (jobs.c.uid, jobs.c.user, jobs.c.queue), (jobs.c.gpu_util_frac, jobs.c.gpu_util_source)
        query = select(*of_job[0], *own, *of_job[1]).join_from(attempts, jobs, attempts.c.uid == jobs.c.uid)
        overlap = (attempts.c.started_at < until, attempts.c.ended_at.is_(None) | (attempts.c.ended_at > since))
        return self._records.read(self.database.read(query.where(*overlap)), attempt_use, "attempt of job")

    def lines(self, *, after: int = 0, uid: str | None = None, limit: int = 1000) -> list[JournalLine]:
        """Journal lines after a sequence number, in order."""
        query = select(journal).where(journal.c.sequence > _clamped(after))
        if uid is not None:
            query = query.where(journal.c.uid == storable(uid))
        query = query.order_by(journal.c.sequence).limit(_clamped(limit))
        return self._records.read(self.database.read(query), journal_line, "journal line")

    def last_sequence(self) -> int:
        """The sequence number of the newest line; 0 is none."""
        newest = self._value(select(func.max(journal.c.sequence))) or 0
        return max(newest, self._value(select(func.max(snapshots.c.sequence))) or 0)

    def prune(self, *, ended_before: float, keep_lines: int) -> int:
        """Deletes jobs and tokens that ended before a time, and old lines no restart needs; returns the rows."""
        self._put((self._writes.meta, [(_LAST_NUMBER, str(self.last_job_number()))]))
        ended = prune_jobs(self.database, ended_before) + prune_tokens(self.database, ended_before)
        return ended + prune_lines(self.database, keep_lines)

    def next_notification(self, busy: Collection[tuple[str, str]], full: Collection[str]) -> Notification | None:
        """The notification to be sent next, but for busy pairs of user and destination, and users with enough."""
        query = next_notification(busy, full).limit(1)
        for number in itertools.count():  # past those that cannot be read
            rows = self.database.read(query.offset(number))
            if found := self._records.read(rows, notification, "notification of job"):
                return found[0]
            if not rows:
                break
        return None

    def put_notification(self, notification: Notification) -> None:
        """Adds or changes a notification."""
        self._put((self._writes.notification, plain_rows([notification])))

    def delete_notification(self, uid: str, position: int) -> None:
        """Deletes a notification, which was sent."""
        row = and_(notifications.c.uid == storable(uid), notifications.c.position == position)
        self.database.write(lambda connection: connection.execute(delete(notifications).where(row)))

    def notifications(self, uid: str) -> list[Notification]:
        """The notifications of a job or an array that were not sent, in the order of its addresses."""
        query = select(notifications).where(notifications.c.uid == storable(uid)).order_by(notifications.c.position)
        return self._records.read(self.database.read(query), notification, "notification of job")

    def put_token(self, token: TokenRecord) -> None:
        """Adds or changes a token."""
        self._put((self._writes.token, [token_row(token)]))

    def tokens(self) -> list[TokenRecord]:
        """All tokens, revoked ones too."""
        rows = self.database.read(select(tokens).order_by(tokens.c.created_at, tokens.c.id))
        return self._records.read(rows, token_record, "token")

    def put_queue(self, queue: QueueRecord) -> None:
        """Adds or changes a queue."""
        self._put((self._writes.queue, [queue_row(queue)]))

    def delete_queue(self, name: str) -> bool:
        """Deletes a queue's limits; whether there were any."""
        statement = delete(queues).where(queues.c.name == storable(name))
        return self.database.write(lambda connection: connection.execute(statement).rowcount > 0)

    def queues(self) -> list[QueueRecord]:
        """All queues that have limits, by name."""
        found = self._records.read(self.database.read(select(queues)), queue_record, "queue")
        return sorted(found, key=lambda queue: queue.name)

    def audit(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, AuditEntry]]:
        """Audit entries with their numbers, newest first."""
        start = _LARGEST if before is None else _clamped(before)
        query = select(audit).order_by(audit.c.id.desc())

        def page(last: Row | None, size: int) -> Sequence[Any]:
            return self.database.read(query.where(audit.c.id < (start if last is None else last[0])).limit(size))

        return self._records.read_page(page, _clamped(limit), numbered_audit_entry, "audit entry")

    def _put(self, *work: tuple[str, list[Row]]) -> None:
        def put(connection: Connection) -> None:
            for statement, rows in work:
                connection.exec_driver_sql(statement, rows)

        self.database.write(put)

    def _setting(self, name: str) -> str | None:
        rows = self.database.read(select(meta.c.value).where(meta.c.name == storable(name)))
        return str(rows[0][0]) if rows else None

    def _jobs(self, query: Executable) -> list[JobRecord]:
        return self._records.read(self.database.read(query), job_record, "job")

    def _value(self, query: Executable) -> Any:
        return self.database.read(query)[0][0]


def _clamped(number: int) -> int:
    """A number within the range of a database's integers."""
    return min(max(number, 0), _LARGEST)
