"""Naming a store: files and URLs, what is said about those that do not work, and that passwords are told to nobody."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from store_samples import job

from gpuwise.core.records import Batch, StoreError
from gpuwise.store.sql import SqlStore, open_store
from postgres import PostgresServer

SECRET = "s3cr3t"


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}"])
def test_a_file_is_named_by_path_or_url(tmp_path: Path, form: str) -> None:
    path = tmp_path / "with space & %41.db"
    store = open_store(form.format(quote(str(path)) if "://" in form else path))
    assert store.place == str(path)
    assert repr(store) == f"SqlStore({str(path)!r})"
    store.close()
    assert path.exists()


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "gpuwise.db")
        store.commit(Batch(jobs=[job("1")]))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == {"gpuwise.db": 0o600, "gpuwise.db-wal": 0o600, "gpuwise.db-shm": 0o600}


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "gpuwise.db"
    path.touch(mode=0o640)
    open_store(path).close()
    assert path.stat().st_size > 0
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "gpuwise.db"
    store = open_store(path)
    store.commit(Batch(jobs=[job(str(number)) for number in range(1, 500)]))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    with pytest.raises(StoreError, match="it is damaged; put a backup in its place with: gpuwise restore FILE"):
        open_store(path).jobs()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/gpuwise.db", "store .*/missing/gpuwise.db: No such file or directory; name a file in a folder"),
        (".", "Is a directory; name a file in a folder"),
        ("sqlite://", "a database in memory is lost when gpuwise stops; name a file"),
        ("sqlite:///:memory:", "a database in memory is lost when gpuwise stops; name a file"),
        (
            f"mysql://ann:{SECRET}@host/db",
            "mysql databases are not supported; name a file, sqlite:///FILE or postgresql",
        ),
        (f"postgresql://ann:{SECRET}@host:port/db", "the database's URL cannot be parsed; name a file"),
        (f"://{SECRET}", "the database's URL cannot be parsed; name a file"),
        (f"postgresql://ann:pass@{SECRET}@host/db", "has two @; write an @ in the password as %40"),
        (
            f"postgresql://ann:{SECRET}@127.0.0.1:1/db",
            r"store postgresql://ann@127.0.0.1:1/db: the server cannot be reached; .*refused",
        ),
        (
            f"postgres://ann@127.0.0.1:1/db?password={SECRET}",
            "store postgresql://ann@127.0.0.1:1/db: the server cannot be reached",
        ),
        (f"postgresql://ann:{SECRET}@127.0.0.1:1/db?cost={SECRET}", 'invalid connection option "cost"'),
    ],
)
def test_a_place_that_does_not_work_is_explained_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=message) as raised:
        open_store(name if "://" in name else tmp_path / name)
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_a_server_that_refuses_says_why(postgres: PostgresServer) -> None:
    with pytest.raises(StoreError, match=r'the server refused the connection .*database "nowhere" does not exist'):
        open_store(postgres.url("nowhere"))
    with pytest.raises(StoreError, match=r'the server refused the connection .*role "nobody" does not exist'):
        open_store(postgres.url(user="nobody"))


def test_a_password_is_not_shown_by_a_store_that_works(postgres: PostgresServer) -> None:
    """The server trusts everybody on its socket and does not ask for the password that it is given."""
    place = postgres.new_place().replace("tester@", f"tester:{SECRET}@") + f"&password={SECRET}"
    store = open_store(place)
    with pytest.raises(StoreError) as raised:
        store.commit(Batch(jobs=[job("1", exit_code=2**70)]))
    assert SECRET not in repr(store) + "".join(traceback.format_exception(raised.value))
    store.close()


def test_what_a_user_put_in_env_is_not_shown(store: SqlStore) -> None:
    """PostgreSQL quotes the whole row that it refuses."""
    refused = job("1", asked={"env": {"API_KEY": SECRET}}, submitted_at=None)
    with pytest.raises(StoreError, match=r"contradicts what is stored .*submitted_at") as raised:
        store.commit(Batch(jobs=[refused]))
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_postgres_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        StoreError, match=r"PostgreSQL needs psycopg; install it with pip install 'gpuwise\[postgres\]'"
    ):
        open_store("postgresql://localhost/db")


def test_two_services_cannot_have_one_database(postgres: PostgresServer) -> None:
    place = postgres.new_place()
    first, second, elsewhere = open_store(place), open_store(place), open_store(postgres.new_place())
    first.claim()
    with pytest.raises(StoreError, match="another gpuwise service uses this database"):
        second.claim()
    elsewhere.claim()
    first.close()
    second.close()
    third = open_store(place)
    third.claim()
    third.close()
    elsewhere.close()
