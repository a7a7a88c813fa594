"""The tables, and the indexes that the store's queries need."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, MetaData, Table, Text, text

REVISION = "0005"
"""The newest revision under ``migrations``; a database at this revision is opened without running any."""
REVISION_TABLE = "gpuwise_schema"

NO_INDEX = -1
"""The array index of a job that is not a task of an array."""

LIVE_STATUSES = ("declared", "pending", "starting", "running", "suspending", "suspended")
STATUSES = (*LIVE_STATUSES, "succeeded", "failed", "cancelled")
SUCCEEDED = "status = 'succeeded'"
"""The condition of a partial index; a database uses the index only for a query with exactly this text."""
WAITING = "given_up_at IS NULL"
"""That of another one."""

DECLARED = "declared"
"""The source of forecasts in rows of older versions."""
metadata = MetaData()
_rising = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, **more: Any) -> Column[str]:
    return Column(name, Text, nullable=False, **more)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _number(name: str, nullable: bool = False) -> Column[float]:
    return Column(name, Double, nullable=nullable)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


meta = Table("meta", metadata, _text("name", primary_key=True), _text("value"))

jobs = Table(
    "jobs",
    metadata,
    _text("uid", primary_key=True),
    _count("number"),
    _count("array_index"),
    _text("queue"),
    _text("name"),
    _text("command_digest"),
    _text("request"),
    _text("user"),
    _text("status"),
    _text("why_ended"),
    _number("submitted_at"),
    _number("started_at", nullable=True),
    _number("ended_at", nullable=True),
    Column("exit_code", BigInteger),
    _count("attempts"),
    _count("failures"),
    _count("out_of_memory"),
    _text("held"),
    _text("placement"),
    _number("duration_s"),
    _number("duration_low_s", nullable=True),
    _number("duration_high_s", nullable=True),
    _text("duration_source"),
    _number("gpu_memory_bytes"),
    _number("gpu_memory_low_bytes", nullable=True),
    _number("gpu_memory_high_bytes", nullable=True),
    _text("gpu_memory_source", server_default=DECLARED),
    _number("gpu_util_frac", nullable=True),
    _number("gpu_util_low_frac", nullable=True),
    _number("gpu_util_high_frac", nullable=True),
    _text("gpu_util_source", server_default=DECLARED),
    _number("step", nullable=True),
    _number("steps", nullable=True),
    _number("loss", nullable=True),
    _number("samples_per_s", nullable=True),
    _number("peak_memory_bytes", nullable=True),
    _number("gpu_s"),
    _count("preemptions"),
    Column("idempotency_key", Text),
    _partial("jobs_ended", "ended_at", where="ended_at IS NOT NULL"),
    _partial("jobs_run_times", "user", "command_digest", "ended_at", where=SUCCEEDED),
    _partial(
        "jobs_idempotency",
        *("user", "idempotency_key", "array_index"),
        where="idempotency_key IS NOT NULL",
        unique=True,
    ),
)

NEWEST_FIRST = (jobs.c.number.desc(), jobs.c.array_index)
# Reversed, to be read backwards: new jobs are then appended to an index, which is faster. Queue and name come last in
# each: a rare one is searched in that index alone, which takes milliseconds and no more indexes.
_OLDEST_FIRST = (jobs.c.number, jobs.c.array_index.desc(), jobs.c.queue, jobs.c.name)
Index("jobs_number", *_OLDEST_FIRST)
Index("jobs_user", jobs.c.user, *_OLDEST_FIRST)
Index("jobs_status", jobs.c.status, *_OLDEST_FIRST)
Index("jobs_user_status", jobs.c.user, jobs.c.status, *_OLDEST_FIRST)

attempts = Table(
    "attempts",
    metadata,
    Column("uid", Text, ForeignKey("jobs.uid"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _text("placement"),
    _number("started_at"),
    _number("ended_at", nullable=True),
    Column("exit_code", BigInteger),
    _text("outcome"),
    _text("detail"),
    _number("peak_memory_bytes", nullable=True),
    _number("cpu_s", nullable=True),
)

notifications = Table(
    "notifications",
    metadata,
    _text("uid", primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    _text("user"),
    _text("destination"),
    _number("created_at"),
    _number("next_at"),
    _count("tries"),
    _text("error"),
    _number("given_up_at", nullable=True),
    _partial("notifications_next", "next_at", where=WAITING),
)

journal = Table(
    "journal",
    metadata,
    Column("sequence", _rising, primary_key=True, autoincrement=False),
    _number("at"),
    _text("kind"),
    Column("uid", Text),
    _text("body"),
    _partial("journal_uid", "uid", "sequence", where="uid IS NOT NULL"),
)

snapshots = Table(
    "snapshots", metadata, Column("sequence", _rising, primary_key=True, autoincrement=False), _text("body")
)

tokens = Table(
    "tokens",
    metadata,
    _text("id", primary_key=True),
    _text("digest"),
    _text("user"),
    _text("role"),
    _number("created_at"),
    _number("expires_at", nullable=True),
    _number("revoked_at", nullable=True),
    Index("tokens_digest", "digest", unique=True),
)

queues = Table(
    "queues",
    metadata,
    _text("name", primary_key=True),
    _number("max_gpus", nullable=True),
    Column("max_jobs", BigInteger),
    _number("weight"),
    _text("users"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _rising, primary_key=True),
    _number("at"),
    _text("user"),
    _text("action"),
    _text("target"),
    _text("outcome"),
    _text("address"),
)
