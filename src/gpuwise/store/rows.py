"""Records as rows of a table, and back."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.notification import Notification
from gpuwise.core.records import (
    AttemptRecord,
    AttemptUse,
    AuditEntry,
    JobRecord,
    JournalLine,
    QueueRecord,
    StoreError,
    TokenRecord,
    UserRole,
)
from gpuwise.store.schema import NO_INDEX

log = logging.getLogger("gpuwise.store")
Row = tuple[Any, ...]
Record = TypeVar("Record")

_UID = re.compile(r"(0|[1-9][0-9]{0,17})(?:-(0|[1-9][0-9]{0,17}))?")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}
"""By annotation, what a field of a record may be."""
_to_json = json.JSONEncoder(separators=(",", ":")).encode


def names_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of a record's fields; columns that store them unchanged have the same names."""
    return tuple(each.name for each in fields(kind))


_JOB_FIELDS = tuple(name for name in names_of(JobRecord) if name not in ("uid", "request"))
_job_fields = attrgetter(*_JOB_FIELDS)
JOB_COLUMNS = ("uid", "request", *_JOB_FIELDS)


def storable(value: Any) -> Any:
    """A value that both databases can store: NUL and lone surrogates become �, NaN becomes NULL."""
    if type(value) is str:
        if value.isascii() and "\0" not in value:
            return value
        return _UNSTORABLE.sub("\ufffd", value)
    return None if value != value else value


class RecordReader:
    """Makes records of rows; one that cannot be read is left out and mentioned, and does not hide the others."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.unreadable: dict[str, str] = {}
        """What was left out, and why."""

    def read(self, rows: Sequence[Any], make: Callable[[Any], Record], what: str) -> list[Record]:
        """The records of rows whose first column names them."""
        found = []
        for row in rows:
            try:
                check_texts(row)
                found.append(make(row))
            except (StoreError, ValueError, TypeError) as error:
                name = storable(f"{what} {row[0]}")
                if name not in self.unreadable:
                    self.unreadable[name] = str(error)
                    log.error("store %s: %s cannot be read and is left out: %s", self._place, name, error)
        return found

    def read_page(
        self,
        rows_after: Callable[[Row | None, int], Sequence[Any]],
        size: int,
        make: Callable[[Any], Record],
        what: str,
    ) -> list[Record]:
        """As many records as a page has, from the rows after a row: a shorter page is the last, for those who ask."""
        found: list[Record] = []
        last = None
        while True:
            wanted = size - len(found)
            rows = rows_after(last, wanted)
            found += self.read(rows, make, what)
            if len(rows) < wanted or len(found) >= size:
                return found
            last = rows[-1]


def check_texts(row: Sequence[Any]) -> None:
    """Raises ValueError for a row with a value that cannot have been written: bytes that are no text."""
    for value in row:
        if type(value) is bytes or (type(value) is str and not value.isascii() and _UNSTORABLE.search(value)):
            raise ValueError("it has bytes that are not UTF-8")


def split_uid(uid: str) -> tuple[int, int] | None:
    """A uid's number and array index; None if it is not a uid."""
    match = _UID.fullmatch(uid)
    return (int(match[1]), NO_INDEX if match[2] is None else int(match[2])) if match else None


def place_of(before: str) -> tuple[int, int]:
    """The number and array index of the job that a page comes after."""
    place = split_uid(before)
    if place is None:
        raise GpuwiseError(f"before is {before!r}; it must be the id of a job, such as 17 or 17-3")
    return place


def command_digest(request: JobRequest) -> str:
    """Equal for jobs that run the same command in the same folder, whatever their array index."""
    words = "\0".join((request.workdir, *request.command))
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def job_row(record: JobRecord) -> Row:
    """The row of a job, in the order of the table's columns."""
    place = split_uid(record.uid)
    if place is None:
        raise StoreError(f"uid is {record.uid!r}; it must be a number such as 17, or 17-3 for a task of an array")
    request = record.request
    text = _to_json(request.to_json())
    columns = (request.queue, request.name, command_digest(request), text, *_job_fields(record))
    return (record.uid, *place, *map(storable, columns))


def job_record(row: Sequence[Any]) -> JobRecord:
    """The job of a row that begins with `JOB_COLUMNS`."""
    values = dict(zip(JOB_COLUMNS, row, strict=False))
    try:
        values["request"] = JobRequest.from_json(json.loads(values["request"]))
    except (GpuwiseError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"job {values['uid']}: its request cannot be read ({error})") from error
    return JobRecord(**values)


def plain_rows(records: Sequence[Any]) -> list[Row]:
    """The rows of records of one kind that are stored field by field."""
    values = attrgetter(*names_of(type(records[0])))
    return [tuple(map(storable, values(record))) for record in records]


def attempt_use(row: Sequence[Any]) -> AttemptUse:
    """The use of a row."""
    return AttemptUse(*row)


def journal_line(row: Sequence[Any]) -> JournalLine:
    """The journal line of a row."""
    return JournalLine(*row)


def attempt_record(row: Sequence[Any]) -> AttemptRecord:
    """The launch of a row."""
    return plain_record(AttemptRecord, row)


def plain_record(kind: type[Record], row: Sequence[Any]) -> Record:
    """The record of such a row."""
    return kind(**dict(zip(names_of(kind), row, strict=True)))


def checked_record(kind: type[Record], row: Sequence[Any]) -> Record:
    """The record of such a row, if it has texts and numbers where they belong; SQLite stores anything anywhere."""
    record = plain_record(kind, row)
    for each in fields(kind):  # type: ignore[arg-type]
        value = getattr(record, each.name)
        if not isinstance(value, _KINDS[str(each.type)]):
            raise ValueError(f"its {each.name} is a {type(value).__name__}; it must be {each.type}")
    return record


def notification(row: Sequence[Any]) -> Notification:
    """The notification of a row."""
    return checked_record(Notification, row)


def numbered_audit_entry(row: Sequence[Any]) -> tuple[int, AuditEntry]:
    """The audit entry of a row, with its number."""
    number, *entry = row
    return number, checked_record(AuditEntry, entry)


def token_row(token: TokenRecord) -> Row:
    """The row of a token."""
    times = (token.created_at, token.expires_at, token.revoked_at)
    return tuple(map(storable, (token.id, token.digest, token.user, str(token.role), *times)))


def token_record(row: Sequence[Any]) -> TokenRecord:
    """The token of a row."""
    token = plain_record(TokenRecord, row)
    return replace(token, role=UserRole(token.role))


def queue_row(queue: QueueRecord) -> Row:
    """The row of a queue."""
    return tuple(map(storable, (queue.name, queue.max_gpus, queue.max_jobs, queue.weight, _to_json(queue.users))))


def queue_record(row: Sequence[Any]) -> QueueRecord:
    """The queue of a row."""
    *limits, users = row
    return plain_record(QueueRecord, (*limits, tuple(json.loads(users))))


def run_time(record: JobRecord) -> float:
    """How long a finished job ran (s), without the time it spent suspended or waiting to be started again."""
    asked = record.request.gpus * record.request.gpu_frac
    if (record.preemptions or record.attempts > 1) and asked and record.gpu_s:
        return record.gpu_s / asked
    return (record.ended_at or 0.0) - (record.started_at or 0.0)
