"""Backup of a service's database while it runs, and restore while it does not."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.service.live.generation import NAME
from gpuwise.service.live.state_folder import StateFolder
from gpuwise.store.sql import open_store

POSTGRES = "only for the SQLite database of a state folder; use pg_dump and pg_restore for PostgreSQL"


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
        raise GpuwiseError(f"{file} does not exist; name a file that gpuwise backup has written")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _copy(file, draft)
    with contextlib.closing(open_store(draft)) as store:
        store.put_meta(NAME, secrets.token_hex(8))
    with contextlib.closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


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
            contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=10.0)) as old,
            contextlib.closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # one file
            (verdict,) = new.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise GpuwiseError(f"{source} cannot be copied to {target}: {error}") from None
    if verdict != "ok":
        raise GpuwiseError(f"{source} is damaged ({verdict}); name another backup")
