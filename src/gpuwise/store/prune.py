"""Deletes old jobs, tokens and journal lines, a few at a time, so that other writes never wait long."""

from __future__ import annotations

import json

from sqlalchemy import Connection, Delete, delete, func, or_, select, text

from gpuwise.store.database import Database
from gpuwise.store.rows import split_uid
from gpuwise.store.schema import LIVE_STATUSES, WAITING, attempts, jobs, journal, notifications, snapshots, tokens

JOBS_AT_ONCE, LINES_AT_ONCE = 500, 10_000


def prune_jobs(database: Database, ended_before: float) -> int:
    """Deletes jobs that ended before a time and that no live job and no notification needs; returns the rows."""
    old = database.read(select(jobs.c.uid, jobs.c.number, jobs.c.status).where(jobs.c.ended_at < ended_before))
    needed = _needed(database)
    uids = [uid for uid, number, status in old if number not in needed and status not in LIVE_STATUSES]
    rows = _delete(database, delete(notifications).where(notifications.c.given_up_at < ended_before))
    for first in range(0, len(uids), JOBS_AT_ONCE):
        some = uids[first : first + JOBS_AT_ONCE]
        rows += _delete(
            database, delete(attempts).where(attempts.c.uid.in_(some)), delete(jobs).where(jobs.c.uid.in_(some))
        )
    return rows


def prune_tokens(database: Database, ended_before: float) -> int:
    """Deletes tokens that expired or were revoked before a time; returns their number."""
    return _delete(
        database, delete(tokens).where(or_(tokens.c.expires_at < ended_before, tokens.c.revoked_at < ended_before))
    )


def prune_lines(database: Database, keep_lines: int) -> int:
    """Deletes lines that the last snapshot replaces, but not the newest ones; returns the number of rows."""
    query = select(
        select(func.max(snapshots.c.sequence)).scalar_subquery(),
        select(func.max(journal.c.sequence)).scalar_subquery(),
        select(func.min(journal.c.sequence)).scalar_subquery(),
    )
    ((snapshot, newest, oldest),) = database.read(query)
    if snapshot is None or newest is None:
        return 0
    end = min(snapshot, newest - max(keep_lines, 0)) + 1
    rows = 0
    for first in range(oldest, end, LINES_AT_ONCE):
        some = journal.c.sequence.between(first, min(first + LINES_AT_ONCE, end) - 1)
        rows += _delete(database, delete(journal).where(some))
    return rows


def _needed(database: Database) -> set[int]:
    """The numbers of jobs and arrays that a live job depends on, or whose ends are yet to be sent."""
    live = database.read(select(jobs.c.request).where(jobs.c.status.in_(LIVE_STATUSES)))
    unsent = database.read(select(notifications.c.uid).where(text(WAITING)))
    after = (each.rpartition(":")[2] for (request,) in live for each in _after(request))
    return {place[0] for place in map(split_uid, (*after, *(uid for (uid,) in unsent))) if place is not None}


def _after(request: str) -> list[str]:
    """What a job waits for; nothing if that cannot be read."""
    try:
        return list(json.loads(request).get("after", ()))
    except (ValueError, AttributeError, TypeError):
        return []


def _delete(database: Database, *statements: Delete) -> int:
    def work(connection: Connection) -> int:
        return sum(connection.execute(statement).rowcount for statement in statements)

    return database.write(work)
