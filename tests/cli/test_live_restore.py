"""An older database is put back while newer jobs run: none is mixed up with another, and new jobs are accepted."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from live_up import Up, until

from postgres import running_postgres


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    folder = tmp_path / "100%41? #1"  # SQLite has its own ideas of such names
    folder.mkdir()
    service = Up(folder)
    yield service
    service.stop()


def _put_back(up: Up, backup: Path, how: str) -> None:
    if how == "restored":
        assert "the database before is kept as" in up.right("restore", str(backup))
        return
    for name in ("gpuwise.db", "gpuwise.db-wal", "gpuwise.db-shm"):
        (up.state / name).unlink(missing_ok=True)
    shutil.copy(backup, up.state / "gpuwise.db")


@pytest.mark.parametrize("how", ["copied", "restored"])
def test_an_older_database_is_put_back_while_newer_jobs_run(up: Up, tmp_path: Path, how: str) -> None:
    backup = tmp_path / "backup.db"
    older, go = up.begin_job("older")
    until(lambda: up.runs(older), "the first job to run")
    assert f"backup written to {backup}" in up.right("backup", str(backup))
    newer, _ = up.begin_job("newer")
    waiting, _ = up.begin_job("waiting")
    until(lambda: up.runs(newer), "the second job to run")
    refused = up.run("restore", str(backup))
    assert (refused.code, "a gpuwise service uses this folder already" in refused.err) == (2, True)
    until(lambda: json.loads((up.state / "generation.json").read_text())["number"] == int(waiting), "a mark")
    up.kill()
    _put_back(up, backup, how)
    up.start()
    (note,) = [each for each in up.get("status")["notes"] if "the database" in each]
    assert f"that continue: {older}; that it does not know and that are ended: {newer}. New jobs" in note
    assert note in (up.state.parent / "up.log").read_text()
    until(lambda: (up.state / "jobs" / newer / "attempts" / "1" / "exit.json").exists(), "the stranger to be ended")
    fresh, fresh_go = up.begin_job("fresh")
    assert int(fresh) > int(waiting)
    up.end_job(fresh, fresh_go)
    up.end_job(older, go)
    assert len(up.job(older)["launches"]) == 1
    assert up.right("logs", older) == "begun\ngone\n"
    assert up.run("show", newer).code == 5


def _refused(up: Up) -> str:
    """What a service that does not start says."""
    answer = up.run("up", "--port", "0", *up.options)
    assert answer.code == 2, answer
    return answer.err


def test_a_damaged_database_is_replaced_by_a_backup(up: Up, tmp_path: Path) -> None:
    backup, database = tmp_path / "backup.db", up.state / "gpuwise.db"
    uid, go = up.begin_job("older")
    until(lambda: up.runs(uid), "the job to run")
    up.right("backup", str(backup))
    up.kill()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damaged = bytes(each ^ 0x55 for each in database.read_bytes()[:4096]) + database.read_bytes()[4096:]
    database.write_bytes(damaged)
    said = _refused(up)
    assert str(database) in said
    assert "is damaged" in said
    assert "gpuwise restore FILE" in said
    log = database.with_name("gpuwise.db-wal")
    log.write_bytes(b"a log of the damaged database")
    assert "the database before is kept as" in up.right("restore", str(backup))
    (kept,) = up.state.glob("gpuwise.db.*.before-restore")
    assert kept.read_bytes() == damaged
    assert not log.exists()
    up.start()
    up.end_job(uid, go)
    assert len(up.job(uid)["launches"]) == 1


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_database_that_is_lost_is_not_replaced_by_an_empty_one(up: Up, tmp_path: Path, left: str) -> None:
    backup, database = tmp_path / "backup.db", up.state / "gpuwise.db"
    uid, go = up.begin_job("older")
    until(lambda: up.runs(uid), "the job to run")
    up.right("backup", str(backup))
    up.kill()
    for path in up.state.glob("gpuwise.db*"):
        path.unlink()
    if left == "an empty file":
        database.touch()
    said = _refused(up)
    for part in (str(database), "gpuwise restore FILE", f"remove {up.state / 'generation.json'} to start"):
        assert part in said
    assert [path for path in up.state.glob("gpuwise.db*") if path.stat().st_size] == []
    up.right("restore", str(backup))
    up.start()
    up.end_job(uid, go)
    up.kill()
    database.unlink()
    (up.state / "generation.json").unlink()
    up.start()
    assert up.run("show", uid).code == 5


def _execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def _not_backups(folder: Path, backup: Path) -> dict[Path, str]:
    """Files that must not be restored, each with what is said of it."""
    found = {
        folder / name: "name a file that gpuwise backup has written" for name in ("none", "empty", "notes", "other")
    }
    (folder / "empty").touch()
    (folder / "notes").write_text("not a database, but long enough to be looked at as one\n" * 100)
    _execute(folder / "other", "CREATE TABLE places (id)")
    whole = backup.read_bytes()
    cut, flipped, newer = (folder / name for name in ("cut", "flipped", "newer"))
    cut.write_bytes(whole[: len(whole) // 2])
    flipped.write_bytes(whole[:8192] + bytes(each ^ 0x55 for each in whole[8192:]))
    shutil.copy(backup, newer)
    _execute(newer, "UPDATE gpuwise_schema SET version_num = '9999'")
    damaged = "name a file that gpuwise backup has written"
    return {**found, cut: damaged, flipped: damaged, newer: "it was written by a newer gpuwise (revision 9999"}


def test_only_a_backup_is_restored_and_no_file_is_replaced(up: Up, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    up.right("backup", str(backup))
    taken = up.run("backup", str(backup))
    assert (taken.code, f"{backup} exists; name another file" in taken.err) == (2, True)
    up.kill()
    files = {path: path.read_bytes() for path in up.state.glob("g*")}
    for file, said in _not_backups(tmp_path, backup).items():
        answer = up.run("restore", str(file))
        assert answer.code == 2, file
        assert str(file) in answer.err
        assert said in answer.err
    assert {path: path.read_bytes() for path in up.state.glob("g*")} == files
    up.start()


def test_the_file_of_a_service_that_has_its_database_elsewhere_is_no_backup(up: Up, tmp_path: Path) -> None:
    up.begin_job("old")[1].touch()
    with running_postgres() as server:
        up.kill()
        up.options = (*up.options, "--database", server.new_place())
        up.start()
        answer = up.run("backup", str(tmp_path / "backup.db"))
        assert (answer.code, "use pg_dump" in answer.err) == (2, True)
        assert not (tmp_path / "backup.db").exists()
        up.kill()
    up.options = Up.options
    up.start()
