"""An older database is put back while newer jobs run: none is mixed up with another, and new jobs are accepted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_up import Up, until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    service = Up(tmp_path)
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
    assert note in (tmp_path / "up.log").read_text()
    until(lambda: (up.state / "jobs" / newer / "attempts" / "1" / "exit.json").exists(), "the stranger to be ended")
    fresh, fresh_go = up.begin_job("fresh")
    assert int(fresh) > int(waiting)
    up.end_job(fresh, fresh_go)
    up.end_job(older, go)
    assert len(up.job(older)["launches"]) == 1
    assert up.right("logs", older) == "begun\ngone\n"
    assert up.run("show", newer).code == 5


def test_only_a_backup_is_restored_and_no_file_is_replaced(up: Up, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not a database, but long enough to be looked at as one\n" * 100)
    taken = up.run("backup", str(notes))
    assert (taken.code, f"{notes} exists; name another file" in taken.err) == (2, True)
    up.kill()
    before = (up.state / "gpuwise.db").read_bytes()
    for file in (notes, tmp_path / "none"):
        answer = up.run("restore", str(file))
        assert answer.code == 2
        assert str(file) in answer.err
    assert (up.state / "gpuwise.db").read_bytes() == before
    up.start()
