"""The query for a page of ended jobs: searched, sorted, and with one row per array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import CTE, ColumnElement, Select, Subquery, case, func, literal, or_, select, union_all

from gpuwise.core.records import EndedPage, JobRecord
from gpuwise.core.search import EndedQuery, SearchTerm, page_start
from gpuwise.store.rows import storable
from gpuwise.store.schema import LIVE_STATUSES, NO_INDEX, STATUSES, jobs
from gpuwise.store.statements import SELECT_JOBS

ENDED_STATUSES = STATUSES[len(LIVE_STATUSES) :]
SORTS: dict[str, ColumnElement[Any]] = {
    "job": jobs.c.number,
    "name": func.lower(jobs.c.name),
    "user": func.lower(jobs.c.user),
    "queue": func.lower(jobs.c.queue),
    "status": jobs.c.status,
    "loss": jobs.c.loss,
    "waited": func.coalesce(jobs.c.started_at, jobs.c.ended_at) - jobs.c.submitted_at,
    "took": jobs.c.ended_at - jobs.c.submitted_at,
    "gpu_s": jobs.c.gpu_s,
    "preemptions": jobs.c.preemptions,
    "ended": jobs.c.ended_at,
}
_TEXTS = {"name": jobs.c.name, "user": jobs.c.user, "queue": jobs.c.queue, "status": jobs.c.status}

Read = Callable[[Any], Sequence[Any]]
ReadJobs = Callable[[Any], Sequence[JobRecord]]


def ended_page(read: Read, read_jobs: ReadJobs, query: EndedQuery) -> EndedPage:
    """A page of ended jobs; an offset beyond the last page gives the last page."""
    seen = [jobs.c.status.in_(ENDED_STATUSES)]
    if query.user is not None:
        seen.append(jobs.c.user == storable(query.user))
    total = _count(read, select(jobs.c.uid).where(*seen).subquery())
    found = [*seen, *map(_matches, query.terms)]
    matching = _count(read, select(jobs.c.uid).where(*found).subquery()) if query.terms else total
    places, row_count, offset = _places(read, _rows(found, query), query)
    wanted = jobs.c.uid.in_([uid for uid, _ in places])
    records = {record.uid: record for record in read_jobs(SELECT_JOBS.where(wanted))}
    shown = [(records[uid], tasks) for uid, tasks in places if uid in records]
    return EndedPage(shown, total, matching, row_count, offset)


def _places(read: Read, rows: Subquery, query: EndedQuery) -> tuple[list[tuple[str, int]], int, int]:
    """The ids and numbers of tasks of a page's rows, the number of all rows, and the number before the page.

    Rows are grouped, which takes most of the time, once: each row of the page has the number of all.
    """
    ordered = _ordered(rows, query).add_columns(func.count().over()).limit(query.limit)
    offset, found = query.offset, read(ordered.offset(query.offset))
    if not found and offset:
        offset = page_start(offset, query.limit, _count(read, rows))
        found = read(ordered.offset(offset))
    places = [(_uid(number, index), tasks) for number, index, tasks, _ in found]
    return places, found[0][-1] if found else 0, offset


def counts_by_array(read: Read, numbers: Sequence[str]) -> dict[str, dict[str, int]]:
    """Of each array, the number of its ended tasks by status."""
    wanted = jobs.c.number.in_([int(number) for number in numbers])
    counted = select(jobs.c.number, jobs.c.status, func.count()).where(wanted, jobs.c.status.in_(ENDED_STATUSES))
    found: dict[str, dict[str, int]] = {}
    for number, status, count in read(counted.group_by(jobs.c.number, jobs.c.status)):
        found.setdefault(str(number), {})[status] = count
    return found


def _matches(term: SearchTerm) -> ColumnElement[bool]:
    text = storable(term.text)
    if term.field == "id":
        return or_(jobs.c.uid == text, jobs.c.uid.startswith(f"{text}-", autoescape=True))
    if term.field:
        return _TEXTS[term.field].icontains(text, autoescape=True)
    anywhere = (column.icontains(text, autoescape=True) for column in _TEXTS.values())
    return or_(jobs.c.uid.startswith(text, autoescape=True), *anywhere)


def _rows(found: Sequence[ColumnElement[bool]], query: EndedQuery) -> Subquery:
    """One row per job or array, and one per task of arrays that are open.

    ``tasks`` is 0 in the row of a job; ``key`` is what a job or its array is sorted by, ``own`` what a task is.
    """
    each = select(jobs.c.number, jobs.c.array_index, SORTS[query.sort].label("key")).where(*found).cte("found")
    groups = _groups(each, query) if query.grouped else _singles(each)
    heads = select(groups, groups.c.key.label("own"), literal(0).label("level"))
    if not query.open_arrays:
        return heads.subquery()
    tasks = (
        select(each.c.number, each.c.array_index, literal(0), groups.c.key, each.c.key, literal(1))
        .join(groups, groups.c.number == each.c.number)
        .where(groups.c.tasks > 0, each.c.number.in_([int(number) for number in query.open_arrays]))
    )
    return union_all(heads, tasks).subquery()


def _groups(each: CTE, query: EndedQuery) -> CTE:
    """Jobs and arrays; an array of which one task was found is that task."""
    key, size = (func.max if query.descending else func.min)(each.c.key), func.count()
    index, tasks = func.min(each.c.array_index).label("array_index"), case((size > 1, size), else_=0).label("tasks")
    return select(each.c.number, index, tasks, key.label("key")).group_by(each.c.number).cte("groups")


def _singles(each: CTE) -> CTE:
    return select(each.c.number, each.c.array_index, literal(0).label("tasks"), each.c.key).cte("groups")


def _ordered(rows: Subquery, query: EndedQuery) -> Select[Any]:
    """Rows in order, those without a value last; an array's tasks follow it."""
    key, own, index = (
        column.desc() if query.descending else column.asc() for column in (rows.c.key, rows.c.own, rows.c.array_index)
    )
    if query.sort != "job":
        index = rows.c.array_index.asc()
    order = (rows.c.key.is_(None), key, rows.c.number.desc(), rows.c.level, rows.c.own.is_(None), own, index)
    return select(rows.c.number, rows.c.array_index, rows.c.tasks).order_by(*order)


def _uid(number: int, index: int) -> str:
    return str(number) if index == NO_INDEX else f"{number}-{index}"


def _count(read: Read, rows: Subquery) -> int:
    return int(read(select(func.count()).select_from(rows))[0][0])
