"""Notifications of ends of jobs that are to be sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

WAITING = "given_up_at IS NULL"


def upgrade() -> None:
    """Makes the table and its index."""
    op.create_table(
        "notifications",
        sa.Column("uid", sa.Text, primary_key=True, nullable=False),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("next_at", sa.Double, nullable=False),
        sa.Column("tries", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("given_up_at", sa.Double, nullable=True),
    )
    condition = sa.text(WAITING)
    op.create_index(
        "notifications_next", "notifications", ["next_at"], sqlite_where=condition, postgresql_where=condition
    )
