"""Backup of a service's database while it runs, and restore while it does not."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import StoreError
from gpuwise.live.local.supervisor.files import read_json
from gpuwise.service.live.generation import FILE, NAME
from gpuwise.service.live.state_folder import StateFolder
from gpuwise.store.backup import ANOTHER, copy, delete, exchange, rows_of
from gpuwise.store.schema import REVISION_TABLE
from gpuwise.store.sql import open_store

POSTGRES = "only for the SQLite database of a state folder; use pg_dump and pg_restore for PostgreSQL"


def backup(state: Path, file: Path) -> int:
    """Writes a copy of the database as it is at one moment, also while the service runs; its size in bytes."""
    source = StateFolder(state).database
    if not source.is_file():
        raise GpuwiseError(f"{source} does not exist; name the state folder with --state. This is {POSTGRES}")
    if file.exists():
        raise GpuwiseError(f"{file} exists; name another file")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        copy(source, draft)
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
            return exchange(folder.database, draft)
        finally:
            delete(draft)
    finally:
        folder.close()


def _prepare(file: Path, draft: Path) -> None:
    """A checked copy of a backup, upgraded to this version, with a generation of its own."""
    if not file.is_file():
        raise GpuwiseError(f"{file} does not exist; {ANOTHER}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    copy(file, draft)
    if not rows_of(draft, "SELECT 1 FROM sqlite_master WHERE name = ?", REVISION_TABLE):
        raise GpuwiseError(f"{file} is not a backup of gpuwise; {ANOTHER}")
    try:
        store = open_store(draft)
    except StoreError as error:
        raise GpuwiseError(str(error).replace(str(draft), str(file))) from None
    with contextlib.closing(store):
        store.put_meta(NAME, secrets.token_hex(8))


def _check_in_use(state: Path, source: Path, copied: Path) -> None:
    """Refuses to take for a backup what is not the service's database, as if that is in PostgreSQL meanwhile."""
    used = read_json(state / FILE).get("id")
    if used is not None and [(used,)] != rows_of(copied, "SELECT value FROM meta WHERE name = ?", NAME):
        raise GpuwiseError(f"{source} is not the database that gpuwise up used last. This is {POSTGRES}")
