"""Files of SQLite databases: copied while they are in use, checked, and exchanged while they are not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from gpuwise.core.errors import GpuwiseError

ANOTHER = "name a file that gpuwise backup has written"


def copy(source: Path, target: Path) -> None:
    """Copies a database page by page, consistently, and checks the copy."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as old,
            contextlib.closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # one file
            (verdict,) = new.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        damaged = getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
        way_out = f"; it is damaged, or no backup: {ANOTHER}" if damaged else ""
        raise GpuwiseError(f"{source} cannot be copied to {target}: {error}{way_out}") from None
    if verdict != "ok":
        raise GpuwiseError(f"{source} is damaged ({verdict}); {ANOTHER}")


def rows_of(database: Path, query: str, *values: str) -> list[tuple[object, ...]]:
    """The rows of a query; none if the database has no such table."""
    with contextlib.closing(sqlite3.connect(database)) as connection, contextlib.suppress(sqlite3.OperationalError):
        return connection.execute(query, values).fetchall()
    return []


def exchange(database: Path, draft: Path) -> Path | None:
    """Puts a draft in the place of a database, damaged or not; where that one is kept, if there was one.

    Whenever the machine fails, one of the two is there whole: the name changes hands in one step.
    """
    _move_log_into(draft)
    with contextlib.suppress(sqlite3.DatabaseError):  # what cannot be moved, since it is damaged, is kept beside it
        _move_log_into(database)
    aside = database.with_name(f"{database.name}.{time.strftime('%Y%m%d-%H%M%S')}.before-restore")
    kept = [each for each in zip(_with_log(database), _with_log(aside), strict=True) if each[0].exists()]
    for old, name in kept:
        os.link(old, name)
    _sync(database.parent)
    for log in _with_log(database)[1:]:
        log.unlink(missing_ok=True)  # or it would be read with the other database
    _sync(database.parent)
    os.replace(draft, database)
    _sync(database.parent)
    return aside if aside.exists() else None


def delete(database: Path) -> None:
    """Deletes a database with its write-ahead log."""
    for path in _with_log(database):
        path.unlink(missing_ok=True)


def _move_log_into(database: Path) -> None:
    if database.exists():
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _with_log(path: Path) -> list[Path]:
    return [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")]


def _sync(folder: Path) -> None:
    """Makes the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
