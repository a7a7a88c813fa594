"""Runs revisions in the transaction of the connection that alembic is given."""

from __future__ import annotations

from alembic import context

from gpuwise.store.schema import REVISION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=REVISION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
