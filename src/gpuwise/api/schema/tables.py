"""The answers with tables of jobs, and how they are made."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, Field

from gpuwise.api.schema import views
from gpuwise.api.schema.answers import Job, QueuedJob
from gpuwise.api.schema.views import View
from gpuwise.core.records import JobRecord
from gpuwise.service.live import job_tables


class ArraySummary(BaseModel):
    """An array in a table."""

    id: str
    tasks: int = Field(description="Its tasks that are in the table and match the search.")
    open: bool = Field(description="Whether its tasks follow, in rows of their own.")
    counts: dict[str, int] = Field(description="All its tasks, by status.")


class TableRow(BaseModel):
    """A job, or an array with the first of its tasks."""

    job: QueuedJob
    array: ArraySummary | None = Field(description="null in the row of a job.")


class Array(BaseModel):
    """All tasks of an array."""

    id: str
    tasks: int
    counts: dict[str, int] = Field(description="Its tasks, by status.")
    held: int = Field(description="Tasks that its user has put on hold.")
    job: Job = Field(description="One of its tasks.")


class Table(BaseModel):
    """A page of a table of jobs."""

    rows: list[TableRow]
    total: int = Field(description="All jobs of the table.")
    matching: int = Field(description="Jobs that the search found.")
    row_count: int = Field(description="Rows of all pages.")
    offset: int = Field(description="Number of rows before these.")


def table_view(page: job_tables.TablePage, may_see: Callable[[JobRecord], bool]) -> View:
    """A page of a table; other users' jobs are without details."""
    names = ("total", "matching", "row_count", "offset")
    return {"rows": [_row(row, may_see(row.entry.job)) for row in page.rows]} | {
        name: getattr(page, name) for name in names
    }


def array_view(array: job_tables.ArrayTasks, may_see: Callable[[JobRecord], bool]) -> View:
    """An array; another user's without details."""
    return {
        "id": array.id,
        "tasks": sum(array.counts.values()),
        "counts": dict(array.counts),
        "held": array.held,
        "job": views.job(array.task, details=may_see(array.task)),
    }


def _row(row: job_tables.TableRow, details: bool) -> View:
    array = row.array
    summary = array and {"id": array.id, "tasks": array.tasks, "open": array.is_open, "counts": dict(array.counts)}
    return {"job": views.queued(row.entry, details=details), "array": summary}
