"""The statements that write, compiled once, and the query that lists jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Dialect,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    or_,
    select,
    text,
    union_all,
)

from gpuwise.store.rows import JOB_COLUMNS, split_uid, storable
from gpuwise.store.schema import (
    NEWEST_FIRST,
    NO_INDEX,
    STATUSES,
    WAITING,
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

SELECT_JOBS = select(*(jobs.c[name] for name in JOB_COLUMNS))
_PAGE = SELECT_JOBS.add_columns(jobs.c.number, jobs.c.array_index)


@dataclass(frozen=True, slots=True)
class WriteStatements:
    """Statements in a database's own dialect, for rows in the order of their table's columns.

    They go to the driver as they are: to have SQLAlchemy build them for each batch takes half a millisecond.
    """

    new_meta: str
    meta: str
    job: str
    attempt: str
    line: str
    audit: str
    notification: str
    snapshot: str
    delete_snapshots: str
    token: str
    queue: str

    @classmethod
    def for_dialect(cls, dialect: Dialect) -> WriteStatements:
        """The statements for SQLite or PostgreSQL."""
        insert = import_module(f"sqlalchemy.dialects.{dialect.name}").insert

        def compiled(statement: Any, columns: Sequence[str] | None = None) -> str:
            return str(statement.compile(dialect=dialect, column_keys=columns))

        def put(table: Table) -> str:
            new = insert(table)
            values = {each.name: new.excluded[each.name] for each in table.c if not each.primary_key}
            return compiled(new.on_conflict_do_update(index_elements=list(table.primary_key), set_=values))

        return cls(
            new_meta=compiled(insert(meta).on_conflict_do_nothing()),
            meta=put(meta),
            job=put(jobs),
            attempt=put(attempts),
            line=compiled(insert(journal)),
            audit=compiled(insert(audit).inline(), [each.name for each in audit.c if not each.primary_key]),
            notification=put(notifications),
            snapshot=put(snapshots),
            delete_snapshots=compiled(delete(snapshots).where(snapshots.c.sequence < bindparam("sequence"))),
            token=put(tokens),
            queue=put(queues),
        )


def newest_jobs(
    *,
    user: str | None,
    statuses: Sequence[str],
    queue: str | None,
    name: str | None,
    uids: Sequence[str],
    before: tuple[int, int] | None,
    limit: int,
) -> Select[Any] | CompoundSelect[Any]:
    """The query for a page of jobs, newest first; its last two columns are a job's place, for the next page.

    With several statuses there is one query per status, and the results are merged: an index gives the newest jobs of
    one status in order, but not those of two.
    """
    equal = {jobs.c.user: user, jobs.c.queue: queue, jobs.c.name: name}
    conditions = [column == storable(value) for column, value in equal.items() if value is not None]
    if uids:
        conditions.append(_among(uids))
    if before is not None:
        conditions.append(_older_than(before))
    page = _PAGE.where(*conditions).order_by(*NEWEST_FIRST).limit(limit)
    known = [each for each in STATUSES if each in statuses]
    if not statuses:
        return page
    if uids or len(known) < 2:
        return page.where(jobs.c.status.in_(known))
    pages = (select(page.where(jobs.c.status == each).subquery()) for each in known)
    return union_all(*pages).order_by(text("number DESC, array_index")).limit(limit)


def next_notification(busy: Collection[tuple[str, str]], full: Collection[str]) -> Select[Any]:
    """The query for the notifications to be sent next, but for busy pairs of user and destination, and some users."""
    columns = notifications.c
    others = [or_(columns.user != user, columns.destination != place) for user, place in busy]
    waiting = select(notifications).where(text(WAITING), columns.user.not_in(full), *others)
    return waiting.order_by(columns.next_at)


def _among(uids: Sequence[str]) -> ColumnElement[bool]:
    places = [place for place in map(split_uid, uids) if place is not None]
    tasks = [f"{number}-{index}" for number, index in places if index != NO_INDEX]
    return or_(
        jobs.c.number.in_([number for number, index in places if index == NO_INDEX]),
        jobs.c.uid.in_(tasks),
    )


def _older_than(before: tuple[int, int]) -> ColumnElement[bool]:
    number, index = before
    return and_(jobs.c.number <= number, or_(jobs.c.number < number, jobs.c.array_index > index))
