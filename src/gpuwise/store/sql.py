"""The store on SQL: SQLite in a file, or PostgreSQL by its URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Executable, delete, func, select, text

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import (
    AttemptRecord,
    AuditEntry,
    Batch,
    JobRecord,
    JournalLine,
    QueueRecord,
    Snapshot,
    Store,
    TokenRecord,
)
from gpuwise.store.database import Database
from gpuwise.store.migrate import migrate
from gpuwise.store.place import locate
from gpuwise.store.prune import prune_jobs, prune_lines
from gpuwise.store.rows import (
    Row,
    command_digest,
    job_record,
    job_row,
    plain_record,
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
    queues,
    snapshots,
    tokens,
)
from gpuwise.store.statements import SELECT_JOBS, Writes, newest_jobs

MAX_UIDS = 10_000
"""How many jobs may be asked for by name at once."""
_LAST_NUMBER = "store.last_job_number"
"""The setting that remembers the highest job number when the job itself is forgotten."""
_LARGEST = 2**63 - 1


def open_store(place: str | os.PathLike[str]) -> SqlStore:
    """Opens a store: a file, made when it is not there, or ``postgresql://USER:PASSWORD@HOST/DATABASE``."""
    database = Database(locate(place))
    try:
        migrate(database)
        database.use_write_ahead_log()
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


class SqlStore(Store):
    """Keeps records in a database. Threads may use it together; what is written is on disk when the call returns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = Writes.for_dialect(database.dialect)

    def __repr__(self) -> str:
        return f"SqlStore({self.place!r})"

    @property
    def place(self) -> str:
        """Where the store is, without a password."""
        return self._database.place

    def claim(self) -> None:
        """Keeps other services off the database; a `StoreError` if one has it already."""
        self._database.claim()

    def close(self) -> None:
        """Lets go of the database."""
        self._database.close()

    def meta(self, name: str, default: str) -> str:
        """A setting of the service; written with ``default`` when it is not there yet."""
        kept = self._setting(name)
        if kept is None:
            self._put((self._writes.new_meta, [(storable(name), storable(default))]))
            kept = self._setting(name)  # what somebody else may have written in between
        return default if kept is None else kept

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
        if batch.snapshot:
            work.append((writes.snapshot, plain_rows([batch.snapshot])))
            work.append((writes.forget_snapshots, [(batch.snapshot.sequence,)]))
        if work:
            self._put(*work)

    def recover(self) -> tuple[Snapshot | None, list[JournalLine]]:
        """The last snapshot and the lines after it."""
        last = self._database.read(select(snapshots).order_by(snapshots.c.sequence.desc()).limit(1))
        snapshot = Snapshot(*last[0]) if last else None
        return snapshot, self.lines(after=snapshot.sequence if snapshot else 0, limit=_LARGEST)

    def live_jobs(self) -> list[JobRecord]:
        """Jobs that have not ended, in the order they were submitted."""
        return self._jobs(
            SELECT_JOBS.where(jobs.c.status.in_(LIVE_STATUSES)).order_by(jobs.c.number, jobs.c.array_index)
        )

    def last_job_number(self) -> int:
        """The highest number that a job or array was ever given; 0 is none."""
        forgotten = int(self._setting(_LAST_NUMBER) or 0)
        return max(forgotten, self._value(select(func.max(jobs.c.number))) or 0)

    def job(self, uid: str) -> JobRecord | None:
        """One job."""
        found = self._jobs(SELECT_JOBS.where(jobs.c.uid == storable(uid)))
        return found[0] if found else None

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
            raise GpuwiseError(f"{len(uids)} jobs are asked for; at most {MAX_UIDS} may be at once")
        return self._jobs(
            newest_jobs(
                user=user, statuses=statuses, queue=queue, name=name, uids=uids, before=before, limit=_bounded(limit)
            )
        )

    def count_live(self, user: str) -> int:
        """How many jobs of a user have not ended."""
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
        last = SELECT_JOBS.where(*same, *timed).order_by(jobs.c.ended_at.desc()).limit(_bounded(limit))
        return [(run_time(job), job.peak_memory_bytes or 0.0) for job in self._jobs(last)]

    def attempts(self, uid: str) -> list[AttemptRecord]:
        """The launches of a job, first one first."""
        asked = select(attempts).where(attempts.c.uid == storable(uid)).order_by(attempts.c.number)
        return [plain_record(AttemptRecord, row) for row in self._database.read(asked)]

    def lines(self, *, after: int = 0, uid: str | None = None, limit: int = 1000) -> list[JournalLine]:
        """Journal lines after a sequence number, in order."""
        asked = select(journal).where(journal.c.sequence > _bounded(after))
        if uid is not None:
            asked = asked.where(journal.c.uid == storable(uid))
        asked = asked.order_by(journal.c.sequence).limit(_bounded(limit))
        return [JournalLine(*row) for row in self._database.read(asked)]

    def last_sequence(self) -> int:
        """The sequence number of the newest line; 0 is none."""
        newest = self._value(select(func.max(journal.c.sequence))) or 0
        return max(newest, self._value(select(func.max(snapshots.c.sequence))) or 0)

    def prune(self, *, ended_before: float, keep_lines: int) -> int:
        """Forgets jobs that ended before a time, and old lines that a restart does not need; how many rows."""
        self._put((self._writes.meta, [(_LAST_NUMBER, str(self.last_job_number()))]))
        return prune_jobs(self._database, ended_before) + prune_lines(self._database, keep_lines)

    def put_token(self, token: TokenRecord) -> None:
        """Adds or changes a token."""
        self._put((self._writes.token, [token_row(token)]))

    def tokens(self) -> list[TokenRecord]:
        """All tokens, revoked ones too."""
        return [
            token_record(row) for row in self._database.read(select(tokens).order_by(tokens.c.created_at, tokens.c.id))
        ]

    def put_queue(self, queue: QueueRecord) -> None:
        """Adds or changes a queue."""
        self._put((self._writes.queue, [queue_row(queue)]))

    def delete_queue(self, name: str) -> bool:
        """Forgets a queue's limits; whether there were any."""
        statement = delete(queues).where(queues.c.name == storable(name))
        return self._database.write(lambda connection: connection.execute(statement).rowcount > 0)

    def queues(self) -> list[QueueRecord]:
        """All queues that have limits, by name."""
        found = [queue_record(row) for row in self._database.read(select(queues))]
        return sorted(found, key=lambda queue: queue.name)

    def audit(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, AuditEntry]]:
        """Audit entries with their numbers, newest first."""
        asked = select(audit).order_by(audit.c.id.desc()).limit(_bounded(limit))
        if before is not None:
            asked = asked.where(audit.c.id < _bounded(before))
        return [(number, plain_record(AuditEntry, row)) for number, *row in self._database.read(asked)]

    def _put(self, *work: tuple[str, list[Row]]) -> None:
        def put(connection: Connection) -> None:
            for statement, rows in work:
                connection.exec_driver_sql(statement, rows)

        self._database.write(put)

    def _setting(self, name: str) -> str | None:
        rows = self._database.read(select(meta.c.value).where(meta.c.name == storable(name)))
        return str(rows[0][0]) if rows else None

    def _jobs(self, asked: Executable) -> list[JobRecord]:
        return [job_record(row) for row in self._database.read(asked)]

    def _value(self, asked: Executable) -> Any:
        return self._database.read(asked)[0][0]


def _bounded(number: int) -> int:
    """A number that a database can compare with or count to."""
    return min(max(number, 0), _LARGEST)
