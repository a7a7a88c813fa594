"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_rising = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Makes the tables and their indexes."""
    op.create_table("meta", _text("name", primary_key=True), _text("value"))
    _jobs()
    op.create_table(
        "attempts",
        sa.Column("uid", sa.Text, sa.ForeignKey("jobs.uid"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        _text("placement"),
        _number("started_at"),
        _number("ended_at", nullable=True),
        sa.Column("exit_code", sa.BigInteger),
        _text("outcome"),
        _text("detail"),
        _number("peak_memory_bytes", nullable=True),
        _number("cpu_s", nullable=True),
    )
    _journal()
    _people()


def _jobs() -> None:
    op.create_table(
        "jobs",
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
        sa.Column("exit_code", sa.BigInteger),
        _count("attempts"),
        _count("failures"),
        _count("out_of_memory"),
        _text("held"),
        _text("placement"),
        _number("duration_s"),
        _text("duration_source"),
        _number("gpu_memory_bytes"),
        _number("step", nullable=True),
        _number("steps", nullable=True),
        _number("loss", nullable=True),
        _number("samples_per_s", nullable=True),
        _number("peak_memory_bytes", nullable=True),
        _number("gpu_s"),
        _count("preemptions"),
        sa.Column("idempotency_key", sa.Text),
    )
    order = ("number", sa.text("array_index DESC"), "queue", "name")
    op.create_index("jobs_number", "jobs", order)
    op.create_index("jobs_user", "jobs", ["user", *order])
    op.create_index("jobs_status", "jobs", ["status", *order])
    op.create_index("jobs_user_status", "jobs", ["user", "status", *order])
    _partial_index("jobs_ended", "jobs", "ended_at", where="ended_at IS NOT NULL")
    _partial_index("jobs_run_times", "jobs", "user", "command_digest", "ended_at", where="status = 'succeeded'")
    key = ("user", "idempotency_key", "array_index")
    _partial_index("jobs_idempotency", "jobs", *key, where="idempotency_key IS NOT NULL", unique=True)


def _journal() -> None:
    op.create_table(
        "journal",
        sa.Column("sequence", _rising, primary_key=True, autoincrement=False),
        _number("at"),
        _text("kind"),
        sa.Column("uid", sa.Text),
        _text("body"),
    )
    _partial_index("journal_uid", "journal", "uid", "sequence", where="uid IS NOT NULL")
    op.create_table("snapshots", sa.Column("sequence", _rising, primary_key=True, autoincrement=False), _text("body"))


def _people() -> None:
    op.create_table(
        "tokens",
        _text("id", primary_key=True),
        _text("digest"),
        _text("user"),
        _text("role"),
        _number("created_at"),
        _number("expires_at", nullable=True),
        _number("revoked_at", nullable=True),
    )
    op.create_index("tokens_digest", "tokens", ["digest"], unique=True)
    op.create_table(
        "queues",
        _text("name", primary_key=True),
        _number("max_gpus", nullable=True),
        sa.Column("max_jobs", sa.BigInteger),
        _number("weight"),
        _text("users"),
    )
    op.create_table(
        "audit",
        sa.Column("id", _rising, primary_key=True),
        _number("at"),
        _text("user"),
        _text("action"),
        _text("target"),
        _text("outcome"),
        _text("address"),
    )


def _text(name: str, **more: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, **more)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _number(name: str, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=nullable)


def _partial_index(name: str, table: str, *columns: str, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
