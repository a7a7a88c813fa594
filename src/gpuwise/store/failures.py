"""What went wrong in a database, in words for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gpuwise.core.records import StoreError

_MODE = "look at the owner and the mode of the file and its folder"
_LOCKED = "another process has locked it; try again when that has ended"
_CONTRADICTION = "what was to be written contradicts what is kept"

_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_IOERR: "the disk is full or does not work; look at the system's log",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: f"it may not be written to; {_MODE}",
    sqlite3.SQLITE_CANTOPEN: f"it cannot be opened; {_MODE}",
    sqlite3.SQLITE_NOTADB: "it is not a database of gpuwise; name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; put a copy in its place",
    sqlite3.SQLITE_CONSTRAINT: _CONTRADICTION,
}
_POSTGRES = {
    "53100": "the server's disk is full; make room",
    "53300": "the server takes no more connections; raise its max_connections",
    "42501": "this user may not do that; let it own the database",
    "25006": "the server may only be read; name one that can be written to",
    "08": "the server is away; see that it runs and can be reached",
    "23": _CONTRADICTION,
    "55": _LOCKED,
    "57": "the server has shut down or is starting; try again soon",
}
"""By error code, or by its first two characters, which are its class."""


class UnconfirmedError(Exception):
    """The connection broke while a transaction was being committed."""


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turns whatever a database raises into a `StoreError` that names the place."""
    try:
        yield
    except UnconfirmedError as error:
        text = "the connection broke while a write was confirmed; only reading tells whether it was kept"
        raise StoreError(f"store {place}: {text}") from error
    except PoolTimeoutError as error:
        raise StoreError(f"store {place}: too many readers at once; try again") from error
    except (DBAPIError, sqlite3.Error) as error:
        # Not "from error", which a log would show: a driver quotes rows, and those hold what users put in env.
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
    """What PostgreSQL's code means; a refused connection has none, and a server that refuses one begins with FATAL."""
    if code is None:
        return "the server refuses the connection" if "FATAL:" in text else _POSTGRES["08"]
    return _POSTGRES.get(code) or _POSTGRES.get(code[:2])


def _first_line(error: BaseException | None) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
