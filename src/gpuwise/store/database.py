"""Connections to one database: one that writes, and others that read at the same time."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine, Executable, QueuePool, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from gpuwise.core.records import StoreError
from gpuwise.store.errors import UnconfirmedError, store_errors
from gpuwise.store.place import describe, make_file

log = logging.getLogger("gpuwise.store")
Result = TypeVar("Result")

TIMEOUT_S = 10
READERS, MAX_READERS = 4, 40
CHECKPOINT_EVERY_S = 0.5
CHECKPOINT_BYTES = 4 << 20
"""A smaller write-ahead log is not moved into the database."""
_SQLITE_PRAGMAS = (
    "synchronous = FULL",  # a commit that has returned survives a power failure
    "foreign_keys = ON",
    "cache_size = -16384",  # KiB
    "wal_autocheckpoint = 40000",  # pages of 4 KiB, in case the checkpointer falls behind
)
_AS_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
"""Of SQLite's texts: a damaged one is found with its row; the driver would fail the query and quote the text."""
_POSTGRES_OPTIONS = {"connect_timeout": str(TIMEOUT_S), "tcp_user_timeout": "30000", "application_name": "gpuwise"}
_POSTGRES_ON_DISK = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_POSTGRES_CLAIM = "SELECT pg_try_advisory_lock(hashtext('gpuwise'), hashtext(current_schema()))"


class Database:
    """One database, SQLite or PostgreSQL; all of its errors are `StoreError`."""

    def __init__(self, url: URL) -> None:
        self.place = describe(url)
        self._lock = threading.Lock()
        self._closed = False
        self._claim: Connection | None = None
        self._checkpointer: Checkpointer | None = None
        if _is_sqlite(url):
            path = make_file(url)
            self._writer, self.readers = _sqlite(path)
            self._checkpointer = Checkpointer(path)
        else:
            self._writer, self.readers = _postgres(url)

    @property
    def dialect(self) -> Dialect:
        """SQLite's or PostgreSQL's dialect of SQL."""
        return self._writer.dialect

    def read(self, statement: Executable) -> Sequence[Any]:
        """The rows that a statement selects."""
        return self.query(lambda connection: connection.execute(statement).fetchall())

    def query(self, work: Callable[[Connection], Result]) -> Result:
        """Does work that only reads, in parallel to other reads and writes."""

        def connect() -> Result:
            with self.readers.connect() as connection:
                return work(connection)

        self._require_open()
        with store_errors(self.place):
            return _retry_if_disconnected(connect)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Does work in one transaction, and returns when it is on disk; if it raises, it is rolled back."""

        def transact() -> Result:
            with self._writer.connect() as connection:
                result = work(connection)
                _commit(connection)
                return result

        with self._lock, store_errors(self.place):
            self._require_open()
            return _retry_if_disconnected(transact)

    def use_write_ahead_log(self) -> None:
        """Lets SQLite read while it writes; the file keeps that setting."""
        if self.dialect.name != "sqlite":
            return
        with store_errors(self.place), self._writer.connect() as connection:
            driver: Any = connection.connection.driver_connection
            (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                f"store {self.place}: its disk does not support a write-ahead log; name a file on a local disk"
            )

    def claim(self) -> None:
        """Locks a PostgreSQL database against other services; a SQLite file is locked by its state folder."""
        if self.dialect.name != "postgresql":
            return
        with store_errors(self.place):
            self._claim = self.readers.connect()
            claimed = self._claim.execute(text(_POSTGRES_CLAIM)).scalar()
        if not claimed:
            raise StoreError(
                f"store {self.place}: another gpuwise service uses this database; stop it, or name another"
            )

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            self._closed = True
            if self._claim is not None:
                self._claim.close()
            self.readers.dispose()
            self._writer.dispose()
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self.place}: it is closed")


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _retry_if_disconnected(work: Callable[[], Result]) -> Result:
    """Does work once more if its connection was lost; the server may have been restarted."""
    try:
        return work()
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
    return work()


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise UnconfirmedError from error
        raise


def _sqlite(path: Path) -> tuple[Engine, Engine]:
    with contextlib.suppress(OSError):  # SQLite would let others read it; its log gets the same mode
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=TIMEOUT_S, isolation_level=None, check_same_thread=False)
        connection.text_factory = _AS_TEXT
        try:
            for pragma in _SQLITE_PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    writer, readers = _engines(URL.create("sqlite"), creator=connect)
    event.listen(writer, "begin", _begin_immediate)
    return writer, readers


def _begin_immediate(connection: Connection) -> None:
    """Takes the write lock at once: a transaction that reads first may be refused when it writes."""
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN IMMEDIATE")


def _postgres(url: URL) -> tuple[Engine, Engine]:
    options = {name: value for name, value in _POSTGRES_OPTIONS.items() if name not in url.query}
    try:
        writer, readers = _engines(url, paramstyle="format", connect_args=options)
    except ModuleNotFoundError as error:
        raise StoreError("PostgreSQL needs psycopg; install it with pip install 'gpuwise[postgres]'") from error
    event.listen(writer, "connect", _commit_on_disk)
    return writer, readers


def _commit_on_disk(connection: Any, _record: object) -> None:
    connection.execute(_POSTGRES_ON_DISK)
    connection.commit()


def _engines(url: URL, **options: Any) -> tuple[Engine, Engine]:
    """One engine with a single connection, which writes, and one with several that read, without transactions."""
    options |= {"poolclass": QueuePool, "pool_timeout": TIMEOUT_S, "pool_use_lifo": True, "hide_parameters": True}
    writer = create_engine(url, pool_size=1, max_overflow=0, **options)
    more = MAX_READERS - READERS
    return writer, create_engine(url, pool_size=READERS, max_overflow=more, isolation_level="AUTOCOMMIT", **options)


class Checkpointer:
    """A thread that moves SQLite's write-ahead log into the database, so that no commit has to wait for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuwise-checkpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(CHECKPOINT_EVERY_S):
            with contextlib.suppress(FileNotFoundError):
                if self._log.stat().st_size >= CHECKPOINT_BYTES:
                    self._checkpoint()

    def _checkpoint(self) -> None:
        try:
            with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            log.warning("%s: its write-ahead log could not be checkpointed: %s", self._path, error)
