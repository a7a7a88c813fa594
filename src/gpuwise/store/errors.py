"""Errors of databases, in words for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gpuwise.core.records import RESTORE, StoreError

_MODE = "check the owner and the mode of the file and its folder"
_LOCKED = "another process has locked it; try again when that process has ended"
_CONTRADICTION = "the write contradicts what is stored"

_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk is full or faulty; see the system log",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: f"it is read-only; {_MODE}",
    sqlite3.SQLITE_CANTOPEN: f"it cannot be opened; {_MODE}",
    sqlite3.SQLITE_NOTADB: f"it is not a gpuwise database, or is damaged; name another file, or {RESTORE}",
    sqlite3.SQLITE_CORRUPT: f"it is damaged; {RESTORE}",
    sqlite3.SQLITE_CONSTRAINT: _CONTRADICTION,
}
_POSTGRES = {
    "53100": "the server's disk is full; free some space",
    "53300": "the server accepts no more connections; raise its max_connections",
    "42501": "this user lacks the permission; make it the owner of the database",
    "25006": "the server is read-only; name one that accepts writes",
    "08": "the server cannot be reached; check that it runs, and the network",
    "23": _CONTRADICTION,
    "55": _LOCKED,
    "57": "the server has shut down or is starting; try again soon",
}
"""By error code, or by its first two characters, which are its class."""


class UnconfirmedError(Exception):
    """The connection was lost while a transaction was being committed."""


@contextmanager
def located(place: str) -> Iterator[None]:
    """Names the place of a record that cannot be read, and the way out."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"store {place}: {error}; {RESTORE}") from error


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turns all errors of a database into a `StoreError` that names the place."""
    try:
        yield
    except UnconfirmedError as error:
        text = "the connection was lost during a commit; read the data to see whether it was stored"
        raise StoreError(f"store {place}: {text}") from error
    except PoolTimeoutError as error:
        raise StoreError(f"store {place}: too many reads at once; try again") from error
    except (DBAPIError, sqlite3.Error) as error:
        # Not "from error", which a log would show: a driver quotes rows, and those contain what users put in env.
        raise StoreError(f"store {place}: {_explain(getattr(error, 'orig', error))}") from None
    except (SQLAlchemyError, OverflowError, UnicodeError) as error:
        raise StoreError(f"store {place}: {_first_line(error)}") from error


def _explain(error: BaseException | None) -> str:
    if isinstance(error, sqlite3.Error):
        meaning = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    else:
        meaning = _meaning(getattr(error, "sqlstate", None), str(error))
    return f"{meaning} ({_first_line(error)})" if meaning else _first_line(error)


def _meaning(code: str | None, text: str) -> str | None:
    """What PostgreSQL's code means; a failed connection has none, and its text has FATAL if the server refused it."""
    if code is None:
        return "the server refused the connection" if "FATAL:" in text else _POSTGRES["08"]
    return _POSTGRES.get(code) or _POSTGRES.get(code[:2])


def _first_line(error: BaseException | None) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
