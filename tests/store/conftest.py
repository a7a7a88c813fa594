"""The same tests on both databases: SQLite in a file, and a PostgreSQL server that the tests start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwise.store.schema import metadata
from gpuwise.store.sql import SqlStore, open_store
from postgres import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests; it runs again whatever a test did to it."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty database is."""
    if request.param == "sqlite":
        return str(tmp_path / "gpuwise.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_place()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tables; to copy it is faster than to make them again for each test."""
    path = tmp_path_factory.mktemp("template") / "gpuwise.db"
    open_store(path).close()
    return path


@pytest.fixture
def sqlite_store(sqlite_template: Path, tmp_path: Path) -> Iterator[SqlStore]:
    """An empty store in a file."""
    opened = open_store(shutil.copy(sqlite_template, tmp_path / "gpuwise.db"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def postgres_tables(postgres: PostgresServer) -> str:
    """A place on the server with all tables."""
    url = postgres.new_place()
    open_store(url).close()
    return url


@pytest.fixture
def postgres_store(postgres: PostgresServer, postgres_tables: str) -> Iterator[SqlStore]:
    """An empty store on the server."""
    tables = (f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))
    postgres.execute(postgres_tables, "; ".join((*tables, "ALTER SEQUENCE audit_id_seq RESTART")))
    opened = open_store(postgres_tables)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> SqlStore:
    """An empty store."""
    opened: SqlStore = request.getfixturevalue("sqlite_store" if request.param == "sqlite" else "postgres_store")
    return opened
