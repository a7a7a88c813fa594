"""Backup of a service's database while it runs, and restore while it does not."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import StoreError
from gpuwise.live.local.supervisor.files import read_json
from gpuwise.service.live.generation import FILE, NAME
from gpuwise.service.live.state_folder import StateFolder
from gpuwise.store.schema import REVISION_TABLE
from gpuwise.store.sql import open_store

POSTGRES = "only for the SQLite database of a state folder; use pg_dump and pg_restore for PostgreSQL"
ANOTHER = "name a file that gpuwise backup has written"


def backup(state: Path, file: Path) -> int:
    """Writes a copy of the database as it is at one moment, also while the service runs; its size in bytes."""
    source = state / "gpuwise.db"
    if not source.is_file():
        raise GpuwiseError(f"{source} does not exist; name the state folder with --state. This is {POSTGRES}")
    if file.exists():
        raise GpuwiseError(f"{file} exists; name another file")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _copy(source, draft)
        _check_in_use(state, source, draft)
        os.replace(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    return file.stat().st_size


def restore(state: Path, file: Path) -> Path | None:
    """Puts a backup in the place of the database, as a new generation; where the one before is kept, if there was one.

    The service must be stopped. Its jobs keep running, and are dealt with when it starts again.
    """
    folder = StateFolder(state)
    folder.open()  # refuses while a service runs
    try:
        draft = folder.path / f".restore.{os.getpid()}"
        try:
            _prepare(file, draft)
            return _exchange(folder.database, draft)
        finally:
            for path in _with_log(draft):
                path.unlink(missing_ok=True)
    finally:
        folder.close()


def _prepare(file: Path, draft: Path) -> None:
    """A checked copy of a backup, upgraded to this version, with a generation of its own."""
    if not file.is_file():
        raise GpuwiseError(f"{file} does not exist; {ANOTHER}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _copy(file, draft)
    if not _select(draft, "SELECT 1 FROM sqlite_master WHERE name = ?", REVISION_TABLE):
        raise GpuwiseError(f"{file} is not a backup of gpuwise; {ANOTHER}")
    try:
        store = open_store(draft)
    except StoreError as error:
        raise GpuwiseError(str(error).replace(str(draft), str(file))) from None
    with contextlib.closing(store):
        store.put_meta(NAME, secrets.token_hex(8))
    with contextlib.closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _check_in_use(state: Path, source: Path, copy: Path) -> None:
    """Refuses to take for a backup what is not the service's database, as if that is in PostgreSQL meanwhile."""
    used = read_json(state / FILE).get("id")
    if used is not None and [(used,)] != _select(copy, "SELECT value FROM meta WHERE name = ?", NAME):
        raise GpuwiseError(f"{source} is not the database that gpuwise up used last. This is {POSTGRES}")


def _select(database: Path, query: str, *values: str) -> list[tuple[object, ...]]:
    """The rows of a query; none if the database has no such table."""
    with contextlib.closing(sqlite3.connect(database)) as connection, contextlib.suppress(sqlite3.OperationalError):
        return connection.execute(query, values).fetchall()
    return []


def _exchange(database: Path, draft: Path) -> Path | None:
    aside = database.with_name(f"{database.name}.{time.strftime('%Y%m%d-%H%M%S')}.before-restore")
    if database.exists():
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # its log must not be read with another database
        database.rename(aside)
    for path in _with_log(database)[1:]:
        path.unlink(missing_ok=True)
    os.replace(draft, database)
    return aside if aside.exists() else None


def _with_log(path: Path) -> list[Path]:
    return [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")]


def _copy(source: Path, target: Path) -> None:
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
