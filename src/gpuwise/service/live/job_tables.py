"""The tables of the page: jobs by what they do, a page at a time, with totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpuwise.core.records import JobRecord, UserRole
from gpuwise.core.search import EndedQuery, page_start, parse_search
from gpuwise.live.controller import Controller
from gpuwise.live.intake import JobIntake
from gpuwise.service.live import table_rows
from gpuwise.service.live.access import Caller
from gpuwise.service.live.errors import InvalidError, NoAnswerError, NotFoundError
from gpuwise.service.live.estimates import Estimate, Estimates, QueueEstimates
from gpuwise.service.live.overview import Overview, QueueEntry
from gpuwise.service.live.table_rows import ON_DEVICES, Row, Viewpoint, array_of
from gpuwise.service.live.threads import WorkerPool, result_of
from gpuwise.store.ended import SORTS as ENDED_SORTS

ESTIMATE_TIMEOUT_S = 0.2
"""How long rows wait for estimates; after that they have the last ones that were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """Which rows of a table to show."""

    search: str = ""
    sort: str | None = None
    """The name of a column; None is the order of the queue, and for ended jobs the last one first."""
    descending: bool = False
    grouped: bool = True
    """Whether an array is one row."""
    open_arrays: tuple[str, ...] = ()
    """Arrays whose tasks follow them, in rows of their own."""
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """An array in a table."""

    id: str
    tasks: int
    """Its tasks that are in the table and match the search."""
    is_open: bool
    counts: Mapping[str, int]
    """All its tasks by status."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A job, or an array with its first task."""

    entry: QueueEntry
    array: ArraySummary | None


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of a table."""

    rows: list[TableRow]
    total: int
    """All jobs of the table."""
    matching: int
    """Those that the search found."""
    row_count: int
    """The rows of all pages."""
    offset: int


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """All tasks of an array."""

    id: str
    task: JobRecord
    """One of them, which has what they have in common."""
    counts: Mapping[str, int]
    """Their number by status."""
    held: int
    """Those that their user has put on hold."""


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """The jobs on GPUs with how many they have, and the positions of those that wait, from 1."""

    gpus: Mapping[str, int]
    positions: Mapping[str, int]

    def sorted(self, records: Sequence[JobRecord]) -> list[JobRecord]:
        """Jobs on GPUs, then the queue, then those that may not start yet."""
        ranks = {uid: rank for rank, uid in enumerate((*self.gpus, *self.positions))}
        return sorted(records, key=lambda record: ranks.get(record.uid, len(ranks)))


class JobTables:
    """Running, waiting and ended jobs as a caller may see them."""

    def __init__(
        self,
        controller: Controller,
        overview: Overview,
        workers: WorkerPool,
        estimators: WorkerPool,
        estimates: Estimates,
    ) -> None:
        self._controller = controller
        self._overview = overview
        self._workers = workers
        self._estimators = estimators
        self._estimates = estimates

    async def live(self, caller: Caller, states: str, query: TableQuery) -> TablePage:
        """A page of jobs that have not ended; ``states`` is running, waiting, or queue for both."""
        _check_sort(query.sort, tuple(table_rows.SORTS))
        view = Viewpoint(caller.principal.may_see, await self._latest_estimates())
        records, order = await result_of(self._controller.ask(_at_once))
        shown = [record for record in records if states == "queue" or states == _state(record)]
        matching, rows = await self._workers.run(_rows, shown, order, query, view)
        offset = page_start(query.offset, query.limit, len(rows))
        page = rows[offset : offset + query.limit]
        latest = await self._latest([row.record for row in page])
        entries = [_entry(record, order, why, view) for record, why in latest]
        return TablePage(
            await self._with_arrays(records, page, entries, query), len(shown), matching, len(rows), offset
        )

    async def ended(self, caller: Caller, query: TableQuery) -> TablePage:
        """A page of the caller's jobs that have ended; an administrator's are all."""
        _check_sort(query.sort, tuple(ENDED_SORTS))
        asked = EndedQuery(
            user=None if caller.principal.role is UserRole.ADMIN else caller.user,
            terms=parse_search(query.search),
            sort=query.sort or "ended",
            descending=query.descending if query.sort else True,
            grouped=query.grouped,
            open_arrays=query.open_arrays,
            offset=query.offset,
            limit=query.limit,
        )
        found = await self._workers.run(self._controller.store.ended_page, asked)
        page = [Row(record, tasks) for record, tasks in found.rows]
        entries = [QueueEntry(row.record, None, None, "", Estimate()) for row in page]
        rows = await self._with_arrays(self._overview.visible(caller), page, entries, query)
        return TablePage(rows, found.total, found.matching, found.row_count, found.offset)

    async def _latest_estimates(self) -> QueueEstimates:
        """Rows do not wait for estimates that take long."""
        try:
            return await self._estimators.run(self._estimates.queue, timeout_s=ESTIMATE_TIMEOUT_S)
        except NoAnswerError:
            return self._estimates.latest

    async def array(self, number: str) -> ArrayTasks:
        """An array, with its tasks counted by status."""
        live = [record for record in self._controller.live_records() if _is_task(record, number)]
        counts = (await self._counts(live, [number]))[number]
        tasks = live or await self._workers.run(self._controller.store.jobs, uids=[number], limit=1)
        if not tasks or not _is_task(tasks[0], number):
            raise NotFoundError(f"there is no array {number!r}")
        return ArrayTasks(number, tasks[0], counts, sum(map(table_rows.is_on_hold, live)))

    async def _latest(self, records: Sequence[JobRecord]) -> list[tuple[JobRecord, str]]:
        """The jobs of a page as they are now, and why they wait; of all jobs it would take the controller long."""

        def question(intake: JobIntake) -> list[tuple[JobRecord, str]]:
            shown = intake.job_records.shown
            return [(shown.get(each.uid, each), str(intake.reason(each.uid) or "")) for each in records]

        return await result_of(self._controller.ask(question)) if records else []

    async def _with_arrays(
        self, live: Sequence[JobRecord], page: Sequence[Row], entries: Sequence[QueueEntry], query: TableQuery
    ) -> list[TableRow]:
        """The rows of a page, with all tasks of their arrays counted."""
        numbers = {array_of(row.record) for row in page if row.tasks}
        counts = await self._counts(live, numbers) if numbers else {}
        return [
            TableRow(entry, _summary(row, counts, query.open_arrays) if row.tasks else None)
            for row, entry in zip(page, entries, strict=True)
        ]

    async def _counts(self, live: Sequence[JobRecord], numbers: Collection[str]) -> dict[str, Counter[str]]:
        ended = await self._workers.run(self._controller.store.counts_by_array, sorted(numbers))
        counts = {number: Counter(ended.get(number, {})) for number in numbers}
        for record in live:
            if (number := array_of(record)) in numbers:
                counts[number][record.status] += 1
        return counts


def _entry(record: JobRecord, order: QueueOrder, why: str, view: Viewpoint) -> QueueEntry:
    return QueueEntry(record, order.gpus.get(record.uid), order.positions.get(record.uid), why, view.estimate(record))


def _is_task(record: JobRecord, number: str) -> bool:
    return record.uid != number and array_of(record) == number


def _state(record: JobRecord) -> str:
    return "running" if record.status in ON_DEVICES else "waiting"


def _at_once(intake: JobIntake) -> tuple[list[JobRecord], QueueOrder]:
    """All jobs that have not ended, and their order, at one moment."""
    state, ids = intake.engine.state, intake.engine.state.jobs.ids
    gpus = {ids[row]: placement.gpus for row, placement in state.placed.items()}
    positions = {ids[row]: position for position, row in enumerate(state.waiting, start=1)}
    return list(intake.job_records.shown.values()), QueueOrder(gpus, positions)


def _rows(records: Sequence[JobRecord], order: QueueOrder, query: TableQuery, view: Viewpoint) -> tuple[int, list[Row]]:
    """The number of jobs that the search found, and the rows of all pages."""
    found = order.sorted(table_rows.found(records, parse_search(query.search), view))
    if query.sort is not None:
        found = table_rows.in_order(found, query.sort, query.descending, view)
    return len(found), table_rows.grouped(found, query.open_arrays) if query.grouped else list(map(Row, found))


def _summary(row: Row, counts: Mapping[str, Mapping[str, int]], open_arrays: Collection[str]) -> ArraySummary:
    number = array_of(row.record)
    return ArraySummary(number, row.tasks, number in open_arrays, counts[number])


def _check_sort(sort: str | None, known: Sequence[str]) -> None:
    if sort is not None and sort not in known:
        raise InvalidError(f"sort is {sort[:60]!r}; it must be one of {', '.join(known)}")
