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
from gpuwise.service.live.errors import InvalidError, NoAnswerError
from gpuwise.service.live.estimates import Estimate, Estimates, QueueEstimates
from gpuwise.service.live.overview import Overview, QueueEntry
from gpuwise.service.live.table_rows import ON_DEVICES, Row, Viewpoint, array_of
from gpuwise.service.live.threads import WorkerPool, result_of

ESTIMATE_TIMEOUT_S = 0.2
"""How long rows wait for estimates; after that they have the last ones that were made."""
ENDED_SORTS = (
    "job", "name", "user", "queue", "status", "loss", "waited", "took", "gpu_s", "preemptions", "ended",
)  # fmt: skip


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
        order = await result_of(self._controller.ask(_queue_order))
        records = self._controller.live_records()
        shown = [record for record in records if states == "queue" or states == _state(record)]
        matching, rows = await self._workers.run(_rows, shown, order, query, view)
        offset = page_start(query.offset, query.limit, len(rows))
        page = rows[offset : offset + query.limit]
        whys = await self._whys([row.record.uid for row in page])
        entries = [_entry(row.record, order, whys, view) for row in page]
        return TablePage(
            await self._with_arrays(records, page, entries, query), len(shown), matching, len(rows), offset
        )

    async def ended(self, caller: Caller, query: TableQuery) -> TablePage:
        """A page of the caller's jobs that have ended; an administrator's are all."""
        _check_sort(query.sort, ENDED_SORTS)
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

    async def _whys(self, uids: Sequence[str]) -> Mapping[str, str]:
        """Why the jobs of a page wait; of all jobs it would take the controller long."""

        def question(intake: JobIntake) -> dict[str, str]:
            return {uid: str(intake.reason(uid) or "") for uid in uids}

        return await result_of(self._controller.ask(question)) if uids else {}

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


def _entry(record: JobRecord, order: QueueOrder, whys: Mapping[str, str], view: Viewpoint) -> QueueEntry:
    uid = record.uid
    return QueueEntry(record, order.gpus.get(uid), order.positions.get(uid), whys[uid], view.estimate(record))


def _state(record: JobRecord) -> str:
    return "running" if record.status in ON_DEVICES else "waiting"


def _queue_order(intake: JobIntake) -> QueueOrder:
    state, ids = intake.engine.state, intake.engine.state.jobs.ids
    gpus = {ids[row]: placement.gpus for row, placement in state.placed.items()}
    return QueueOrder(gpus, {ids[row]: position for position, row in enumerate(state.waiting, start=1)})


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
