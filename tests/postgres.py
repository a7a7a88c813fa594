"""A PostgreSQL server of the tests' own, in a fresh folder, reached by a Unix socket in it.

A folder of tests that needs one has in its ``conftest.py``::

    @pytest.fixture(scope="session")
    def postgres() -> Iterator[PostgresServer]:
        with running_postgres() as server:
            yield server
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the tests end the server, never the machine
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
}
_PATIENCE_S = 30.0


class PostgresServer:
    """A server that can be killed and started again; every place on it is used once."""

    def __init__(self, programs: Path, folder: Path, account: dict[str, Any]) -> None:
        self._programs = programs
        self._folder = folder
        self._account = account
        self._names = (f"test_{number}" for number in itertools.count())
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", self._data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")

    def start(self) -> None:
        """Starts it and returns when it answers."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        command = [self._programs / "postgres", "-D", self._data, "-k", self._folder, *settings]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._account
            )
        end = time.monotonic() + _PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "server.log").read_text()
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends all its processes at once, with no time to tidy up."""
        if self._process is None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            child.kill()
        self._process.wait(_PATIENCE_S)
        self._process = None

    def new_place(self) -> str:
        """The URL of an empty schema, which to its user is an empty database and is made a hundred times faster."""
        name = next(self._names)
        self.execute(self.url(), f"CREATE SCHEMA {name}")
        return f"{self.url()}&options=-csearch_path%3D{name}"

    def url(self, database: str = "postgres", user: str = "tester") -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{database}?host={self._folder}"

    def execute(self, url: str, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement, or several without rows; the rows it gives."""
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _answers(self) -> bool:
        asked = [self._programs / "pg_isready", "-q", "-h", self._folder]
        return subprocess.run(asked, timeout=_PATIENCE_S, check=False).returncode == 0

    def _run(self, program: str, *arguments: str | Path) -> str:
        done = subprocess.run(
            [self._programs / program, *arguments], cwd=self._folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=_PATIENCE_S, check=False, **self._account,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} failed: {done.stderr}{done.stdout}"
        return done.stdout.strip()


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A running server; the test is skipped where PostgreSQL is not installed."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gpuwise[postgres]'")
    programs = _programs()
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="gpuwise-postgres-"))
    try:
        if "user" in account:
            os.chown(folder, account["user"], account["group"])
        server = PostgresServer(programs, folder, account)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found and (on_path := shutil.which("postgres")):
        found = [Path(on_path).resolve()]
    if not found:
        pytest.skip("PostgreSQL is not installed: no postgres in /usr/lib/postgresql/*/bin or on PATH")
    return found[-1].parent


def _account() -> dict[str, Any]:
    """Who runs the server: whoever runs the tests, but never root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
