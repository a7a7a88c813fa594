"""Jobs that have not ended as rows of a table: searched, sorted, and with one row per array."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwise.core.records import JobRecord
from gpuwise.core.search import SearchTerm
from gpuwise.service.live.estimates import Estimate, QueueEstimates

ON_DEVICES = frozenset(("starting", "running", "suspending"))
Key = Callable[[JobRecord, Estimate], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A job, or an array by its first task."""

    record: JobRecord
    tasks: int = 0
    """The number of an array's tasks that were found; 0 is a row of one job."""


SORTS: dict[str, Key] = {
    "job": lambda record, _: tuple(map(int, record.uid.split("-"))),
    "user": lambda record, _: record.user.lower(),
    "status": lambda record, _: record.status,
    "gpus": lambda record, _: record.request.gpus * record.request.gpu_frac,
    "name": lambda record, _: record.request.name.lower(),
    "queue": lambda record, _: record.request.queue.lower(),
    "where": lambda record, _: record.placement or None,
    "progress": lambda record, _: record.step / record.steps if record.step is not None and record.steps else None,
    "loss": lambda record, _: record.loss,
    "speed": lambda record, _: record.samples_per_s,
    "duration": lambda record, _: record.duration_s,
    "submitted": lambda record, _: record.submitted_at,
    "started": lambda record, _: record.started_at,
    "start": lambda _, estimate: estimate.start_at,
    "finish": lambda _, estimate: estimate.finish_at,
}
DETAILS = frozenset(("name", "progress", "loss", "speed"))
"""What another user's jobs are neither found nor sorted by, since it is not shown (`NO_DETAILS` of the API)."""


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """What decides the rows besides the jobs: who looks at them, and the estimates."""

    may_see: Callable[[JobRecord], bool]
    """Whether all of a job may be shown; of others, what everyone sees can be searched and sorted by."""
    estimates: QueueEstimates

    def texts(self, record: JobRecord) -> dict[str, str]:
        """What a search looks at, by field."""
        status = f"{record.status}, on hold" if is_on_hold(record) else record.status
        public = {"id": record.uid, "user": record.user, "status": status, "queue": record.request.queue}
        return public | {"name": record.request.name} if self.may_see(record) else public

    def key(self, sort: str, record: JobRecord) -> Any:
        """What a job is sorted by; None is last."""
        if sort in DETAILS and not self.may_see(record):
            return None
        return SORTS[sort](record, self.estimate(record))

    def estimate(self, record: JobRecord) -> Estimate:
        """When a job is expected to start and to end."""
        return self.estimates.of(record)


def found(records: Sequence[JobRecord], terms: Sequence[SearchTerm], view: Viewpoint) -> list[JobRecord]:
    """The jobs that match every term."""
    if not terms:
        return list(records)
    return [record for record in records if _matches(view.texts(record), terms)]


def _matches(texts: Mapping[str, str], terms: Sequence[SearchTerm]) -> bool:
    return all(term.matches(texts) for term in terms)


def in_order(records: Sequence[JobRecord], sort: str, descending: bool, view: Viewpoint) -> list[JobRecord]:
    """Jobs sorted by a column; those without a value are last, and equal ones stay in their order."""
    keyed = [(view.key(sort, record), record) for record in records]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=lambda pair: pair[0], reverse=descending)
    return [record for _, record in known] + [record for key, record in keyed if key is None]


def grouped(records: Sequence[JobRecord], open_arrays: Collection[str]) -> list[Row]:
    """One row per array, where its first task is; the tasks of an open array follow it."""
    arrays: dict[str, list[JobRecord]] = {}
    for record in records:
        arrays.setdefault(array_of(record), []).append(record)
    rows: list[Row] = []
    for number, tasks in arrays.items():
        if len(tasks) == 1:
            rows.append(Row(tasks[0]))
            continue
        rows.append(Row(tasks[0], len(tasks)))
        if number in open_arrays:
            rows += map(Row, tasks)
    return rows


def is_on_hold(record: JobRecord) -> bool:
    """Whether its user has put a job on hold."""
    return "user" in record.held.split(",")


def array_of(record: JobRecord) -> str:
    """The number of a job or of its array."""
    return record.uid.partition("-")[0]
