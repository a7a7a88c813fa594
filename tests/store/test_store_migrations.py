"""The tables: made in an empty database, left alone when they are up to date, refused when they are not known."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command, op
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from store_samples import job

from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest, Processes
from gpuwise.core.records import Batch, StoreError
from gpuwise.store import schema
from gpuwise.store.database import Database
from gpuwise.store.place import locate
from gpuwise.store.sql import SqlStore, open_store


def tables_in(place: str) -> set[str]:
    database = Database(locate(place))
    found = database.query(lambda connection: set(inspect(connection).get_table_names()))
    database.close()
    return found


def execute(place: str, statement: str) -> None:
    database = Database(locate(place))
    database.write(lambda connection: connection.exec_driver_sql(statement))
    database.close()


def test_the_code_knows_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", "gpuwise.store:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == schema.REVISION


def test_revisions_lead_to_the_tables_that_the_code_knows(store: SqlStore) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"version_table": schema.REVISION_TABLE, "compare_type": True}
        )
        return list(compare_metadata(context, schema.metadata))

    def indexes(connection: Connection) -> dict[str, str]:
        sql = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        return {str(name): str(sql) for name, sql in connection.exec_driver_sql(sql)}

    assert store.database.query(differences) == []
    if store.database.dialect.name == "sqlite":  # alembic compares no conditions and no direction
        made = Database(locate(store.place + ".made"))
        made.write(schema.metadata.create_all)
        assert store.database.query(indexes) == made.query(indexes)
        made.close()


def test_an_empty_database_gets_all_tables_at_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision that fails half way leaves nothing behind, so that the next start begins at the same point."""
    create_table = op.create_table

    def fail_late(name: str, *columns: Any, **options: Any) -> Any:
        if name == "queues":
            raise RuntimeError("power cut")
        return create_table(name, *columns, **options)

    monkeypatch.setattr(op, "create_table", fail_late)
    with pytest.raises(RuntimeError, match="power cut"):
        open_store(place)
    assert tables_in(place) == set()
    monkeypatch.undo()
    open_store(place).close()
    assert tables_in(place) == {*schema.metadata.tables, schema.REVISION_TABLE}


def test_a_newer_database_is_refused_and_left_alone(place: str) -> None:
    store = open_store(place)
    store.commit(Batch(jobs=[job("1")]))
    store.close()
    execute(place, f"UPDATE {schema.REVISION_TABLE} SET version_num = '9999'")
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"it was written by a newer gpuwise \(revision 9999; .*\); update gpuwise"
        ):
            open_store(place)
    execute(place, f"UPDATE {schema.REVISION_TABLE} SET version_num = '{schema.REVISION}'")
    store = open_store(place)
    assert store.jobs() == [job("1")]
    store.close()


def test_a_database_of_something_else_is_refused_and_left_alone(place: str) -> None:
    execute(place, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreError, match="it is not a gpuwise database, it has the tables recipes; name another"):
        open_store(place)
    assert tables_in(place) == {"recipes"}


def test_not_a_byte_of_a_foreign_file_is_changed(tmp_path: Path) -> None:
    foreign, notes = tmp_path / "cookbook.db", tmp_path / "notes.txt"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    notes.write_text("not a database, but long enough to be looked at as one\n" * 100)
    for path in (foreign, notes):
        before = path.read_bytes()
        with pytest.raises(StoreError, match="it is not a gpuwise database"):
            open_store(path)
        assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [foreign, notes]


OLD_REQUEST = (
    '{"command":["python","train.py"],"name":"net","gpus":2,"gpu_types":["A100"],"sharing":["exclusive","time_slice"],'
    '"speeds":{"A100":1.5},"predicted_s":50.0,"gpu_util_frac":0.5,"processes":"per-gpu","array":[3]}'
)
OLD_ROW = {
    "uid": "17-3", "number": 17, "array_index": 3, "queue": "default", "name": "net", "command_digest": "x",
    "request": OLD_REQUEST, "user": "ada", "status": "running", "why_ended": "", "submitted_at": 1.0, "attempts": 1,
    "failures": 0, "out_of_memory": 0, "held": "", "placement": "box:0,1", "duration_s": 50.0,
    "duration_source": "predicted", "gpu_memory_bytes": 0.0, "gpu_s": 5.0, "preemptions": 0,
}  # fmt: skip


def test_a_job_of_the_version_before_is_read_and_goes_on(place: str) -> None:
    def make(connection: Connection) -> None:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "gpuwise.store:migrations")
        command.upgrade(config, "0001")
        names = ", ".join(f'"{name}"' for name in OLD_ROW)
        values = ", ".join(f":{name}" for name in OLD_ROW)
        connection.execute(text(f"INSERT INTO jobs ({names}) VALUES ({values})"), OLD_ROW)

    database = Database(locate(place))
    database.write(make)
    database.close()
    store = open_store(place)
    (record,) = store.live_jobs()
    assert (record.duration_s, record.duration_source, record.duration_low_s) == (50.0, "predicted", None)
    assert (record.gpu_memory_source, record.gpu_util_frac) == ("declared", None)
    assert record.request == JobRequest(
        command=("python", "train.py"), name="net", gpus=2, gpu_types=("A100",), predicted_s=50.0, gpu_util_frac=0.5,
        sharing=frozenset((Sharing.EXCLUSIVE, Sharing.TIME_SLICE)), speeds={"A100": 1.5}, processes=Processes.PER_GPU,
        array=(3,), requeue=True,
    )  # fmt: skip
    store.commit(Batch(jobs=[replace(record, status="succeeded", duration_low_s=40.0)]))
    assert store.job("17-3").duration_low_s == 40.0  # type: ignore[union-attr]
    store.close()


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


def test_an_up_to_date_database_is_opened_without_alembic(place: str) -> None:
    open_store(place).close()
    code = (
        "import sys; from gpuwise.store.sql import open_store; store = open_store(sys.argv[1]); store.jobs(); "
        "print([name for name in ('sqlalchemy', 'sqlalchemy.orm', 'alembic', 'numpy') if name in sys.modules])"
    )
    output, _ = run_python(code, place).communicate(timeout=30)
    assert output.strip() == "['sqlalchemy']"


def test_processes_that_start_at_once_on_an_empty_database_agree(place: str) -> None:
    code = "import sys; from gpuwise.store.sql import open_store; print(open_store(sys.argv[1]).meta('x', sys.argv[2]))"
    started = [run_python(code, place, str(number)) for number in range(2)]
    answers = {process.communicate(timeout=30)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0]
    assert len(answers) == 1
