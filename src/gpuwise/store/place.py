"""Where a store is: a file, or a database of a PostgreSQL server."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from gpuwise.core.records import StoreError

_EXPECTED = "name a file, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


def locate(place: str | os.PathLike[str]) -> URL:
    """The URL of what a user named; a name without ``://`` is a file."""
    text = os.fspath(place)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"the database's URL cannot be parsed; {_EXPECTED}") from None
    kind = url.drivername.partition("+")[0]
    if kind == "sqlite":
        return url
    if kind not in ("postgresql", "postgres"):
        raise StoreError(f"{kind} databases are not supported; {_EXPECTED}")
    if "@" in (url.host or ""):
        raise StoreError("the database's URL has two @; write an @ in the password as %40")
    return url.set(drivername="postgresql+psycopg")


def describe(url: URL) -> str:
    """The place in words, without a password and without options, which may contain one too."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    given = url.query.get("host", "")
    host = url.host or (given if isinstance(given, str) else ",".join(given))
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{user}{host}{port}/{url.database or ''}"


def missing_file(place: str | os.PathLike[str]) -> Path | None:
    """The file of a SQLite database that does not exist, or is empty; None if it has something in it."""
    url = locate(place)
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    path = Path(str(url.database)).absolute()
    return None if path.exists() and path.stat().st_size else path


def make_file(url: URL) -> Path:
    """The file of a SQLite database; created for its owner alone if it does not exist."""
    if url.database in (None, "", ":memory:"):
        raise StoreError(f"a database in memory is lost when gpuwise stops; {_EXPECTED}")
    path = Path(str(url.database)).absolute()
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"store {path}: {error.strerror}; name a file in a folder that you may write to") from error
    return path
