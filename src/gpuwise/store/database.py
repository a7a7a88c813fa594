"""Connections to one database: one that writes, and others that read at the same time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine, Executable, QueuePool, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from gpuwise.core.records import StoreError
from gpuwise.store.checkpoints import Checkpointer
from gpuwise.store.failures import UnconfirmedError, explained
from gpuwise.store.place import describe, make_file

Result = TypeVar("Result")

_PATIENCE_S = 10
_READERS, _MOST_READERS = 4, 40
_SQLITE_PRAGMAS = (
    "synchronous = FULL",  # a commit that has returned outlives a power cut
    "foreign_keys = ON",
    "cache_size = -16384",  # KiB
    "wal_autocheckpoint = 40000",  # pages of 4 KiB, should the checkpointer not come after
)
_POSTGRES_OPTIONS = {"connect_timeout": str(_PATIENCE_S), "tcp_user_timeout": "30000", "application_name": "gpuwise"}
_POSTGRES_ON_DISK = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_POSTGRES_CLAIM = "SELECT pg_try_advisory_lock(hashtext('gpuwise'), hashtext(current_schema()))"


class Database:
    """One database, SQLite or PostgreSQL; whatever it raises is a `StoreError`."""

    def __init__(self, url: URL) -> None:
        self.place = describe(url)
        self._lock = threading.Lock()
        self._closed = False
        self._claim: Connection | None = None
        self._checkpointer: Checkpointer | None = None
        if _is_sqlite(url):
            path = make_file(url)
            self._writer, self._readers = _sqlite(path)
            self._checkpointer = Checkpointer(path)
        else:
            self._writer, self._readers = _postgres(url)

    @property
    def dialect(self) -> Dialect:
        """What tells the two kinds of SQL apart."""
        return self._writer.dialect

    def read(self, statement: Executable) -> Sequence[Any]:
        """The rows that answer a question."""
        return self.ask(lambda connection: connection.execute(statement).fetchall())

    def ask(self, work: Callable[[Connection], Result]) -> Result:
        """Does work that only reads, beside other work that reads or writes."""

        def connect() -> Result:
            with self._readers.connect() as connection:
                return work(connection)

        self._require_open()
        with explained(self.place):
            return _again_if_away(connect)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Does work in one transaction, and returns when it is on disk; if it raises, nothing of it is kept."""

        def transact() -> Result:
            with self._writer.connect() as connection:
                result = work(connection)
                _commit(connection)
                return result

        with self._lock, explained(self.place):
            self._require_open()
            return _again_if_away(transact)

    def use_write_ahead_log(self) -> None:
        """Lets SQLite read while it writes; the file remembers it."""
        if self.dialect.name != "sqlite":
            return
        with explained(self.place), self._writer.connect() as connection:
            driver: Any = connection.connection.driver_connection
            (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"store {self.place}: its disk cannot be shared by processes; name a file on a local disk")

    def claim(self) -> None:
        """Keeps other services off a PostgreSQL database while this one has it; a file is guarded by its folder."""
        if self.dialect.name != "postgresql":
            return
        with explained(self.place):
            self._claim = self._readers.connect()
            claimed = self._claim.execute(text(_POSTGRES_CLAIM)).scalar()
        if not claimed:
            raise StoreError(
                f"store {self.place}: another gpuwise service uses this database; stop it, or name another"
            )

    def close(self) -> None:
        """Lets go of all connections."""
        with self._lock:
            self._closed = True
            if self._claim is not None:
                self._claim.close()
            self._readers.dispose()
            self._writer.dispose()
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self.place}: it is closed")


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _again_if_away(work: Callable[[], Result]) -> Result:
    """Does work once more when its connection turns out to be dead; the server may be back since it was made."""
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
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
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
    """Takes the write lock at once: a transaction that began to read and then wants to write can be refused."""
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN IMMEDIATE")


def _postgres(url: URL) -> tuple[Engine, Engine]:
    options = {name: value for name, value in _POSTGRES_OPTIONS.items() if name not in url.query}
    try:
        writer, readers = _engines(url, paramstyle="format", connect_args=options)
    except ModuleNotFoundError as error:
        raise StoreError("PostgreSQL needs psycopg; install it by pip install 'gpuwise[postgres]'") from error
    event.listen(writer, "connect", _commit_on_disk)
    return writer, readers


def _commit_on_disk(connection: Any, _record: object) -> None:
    connection.execute(_POSTGRES_ON_DISK)
    connection.commit()


def _engines(url: URL, **options: Any) -> tuple[Engine, Engine]:
    """One engine with a single connection, which writes, and one with some that read, each statement by itself."""
    options |= {"poolclass": QueuePool, "pool_timeout": _PATIENCE_S, "pool_use_lifo": True, "hide_parameters": True}
    writer = create_engine(url, pool_size=1, max_overflow=0, **options)
    more = _MOST_READERS - _READERS
    return writer, create_engine(url, pool_size=_READERS, max_overflow=more, isolation_level="AUTOCOMMIT", **options)
