"""Brings a database to the tables that this version of gpuwise knows."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from gpuwise.core.records import StoreError
from gpuwise.store.database import Database
from gpuwise.store.schema import REVISION, REVISION_TABLE

_LOCK = 0x67707577697365
"""What two processes that start at once on PostgreSQL wait for each other by: "gpuwise" as a number."""


def migrate(database: Database) -> None:
    """Makes the tables, or changes those of an older version; a database that is up to date is left alone."""
    if database.ask(lambda connection: _revision(connection, database.place)) != REVISION:
        database.write(lambda connection: _upgrade(connection, database.place))


def _revision(connection: Connection, place: str) -> str | None:
    """The revision a database is at; None is an empty database."""
    tables = inspect(connection).get_table_names()
    if REVISION_TABLE in tables:
        found = connection.execute(text(f"SELECT version_num FROM {REVISION_TABLE}")).scalar()
        return None if found is None else str(found)
    if tables:
        shown = ", ".join(sorted(tables)[:5])
        raise StoreError(f"store {place}: it is not a database of gpuwise, it holds {shown}; name another")
    return None


def _upgrade(connection: Connection, place: str) -> None:
    # Imported here, since a database that is up to date needs none of it and opens faster without.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    found = _revision(connection, place)
    config = Config()
    config.set_main_option("script_location", "gpuwise.store:migrations")
    known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"store {place}: a newer gpuwise has written it (its tables are of revision {found}, "
            f"this one knows up to {REVISION}); update gpuwise, or name another database"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
