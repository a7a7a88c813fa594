"""Jobs that were accepted before there was requeue are still run again if they are lost, as they were then."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0002"

LIVE = ("declared", "pending", "starting", "running", "suspending", "suspended")


def upgrade() -> None:
    """Adds requeue to the requests of jobs that have not ended; one that cannot be read is left as it is."""
    jobs = sa.table("jobs", sa.column("uid"), sa.column("status"), sa.column("request"))
    connection = op.get_bind()
    for uid, request in connection.execute(sa.select(jobs.c.uid, jobs.c.request).where(jobs.c.status.in_(LIVE))).all():
        try:
            changed = json.dumps({**json.loads(request), "requeue": True}, separators=(",", ":"))
        except (ValueError, TypeError):
            continue
        connection.execute(jobs.update().where(jobs.c.uid == uid).values(request=changed))
