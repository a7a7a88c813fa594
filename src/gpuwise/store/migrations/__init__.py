"""Upgrades a database to the tables of this version, revision by revision, with alembic."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from gpuwise.core.records import StoreError
from gpuwise.store.database import Database
from gpuwise.store.schema import REVISION, REVISION_TABLE

_LOCK = 0x67707577697365
"""The advisory lock of PostgreSQL for two processes that start at once: "gpuwise" as a number."""


def migrate(database: Database) -> None:
    """Creates the tables, or upgrades those of an older version; a database that is up to date is not changed."""
    if database.query(lambda connection: _revision(connection, database.place)) != REVISION:
        database.write(lambda connection: _upgrade(connection, database.place))


def _revision(connection: Connection, place: str) -> str | None:
    """The revision of a database; None if it is empty."""
    tables = inspect(connection).get_table_names()
    if REVISION_TABLE in tables:
        found = connection.execute(text(f"SELECT version_num FROM {REVISION_TABLE}")).scalar()
        return None if found is None else str(found)
    if tables:
        shown = ", ".join(sorted(tables)[:5])
        raise StoreError(f"store {place}: it is not a gpuwise database, it has the tables {shown}; name another")
    return None


def _upgrade(connection: Connection, place: str) -> None:
    # Imported here: a database that is up to date opens faster without.
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
            f"store {place}: it was written by a newer gpuwise (revision {found}; "
            f"this one supports up to {REVISION}); update gpuwise, or name another database"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
