"""Forecasts of jobs with their intervals and sources."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NUMBERS = (
    "duration_low_s", "duration_high_s", "gpu_memory_low_bytes", "gpu_memory_high_bytes", "gpu_util_frac",
    "gpu_util_low_frac", "gpu_util_high_frac",
)  # fmt: skip
SOURCES = ("gpu_memory_source", "gpu_util_source")


def upgrade() -> None:
    """Adds the columns; what older rows have not is not known, or was declared."""
    for name in NUMBERS:
        op.add_column("jobs", sa.Column(name, sa.Double, nullable=True))
    for name in SOURCES:
        op.add_column("jobs", sa.Column(name, sa.Text, nullable=False, server_default="declared"))
