"""Files of databases are exchanged whole: whenever the machine fails, the one or the other is there."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuwise.store.backup import exchange


def _with_note(path: Path, note: str) -> Path:
    """A database with a write-ahead log, which is not there once it is closed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE notes (note)")
        connection.execute("INSERT INTO notes VALUES (?)", (note,))
    return path


def _note(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        found: str = connection.execute("SELECT note FROM notes").fetchone()[0]
    return found


def _crashed(path: Path, note: str, update: str) -> Path:
    """A database whose last change is in its log alone, as after a crash."""
    other = _with_note(path.with_name("other"), note)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("UPDATE notes SET note = ?", (update,))
        connection.commit()
        shutil.copy(other, path)
        shutil.copy(f"{other}-wal", f"{path}-wal")
    return path


def _failing(at: int, work: Callable[..., Any], count: list[int]) -> Callable[..., Any]:
    def fail(*args: Any, **options: Any) -> Any:
        count.append(1)
        if len(count) > at:
            raise OSError("the machine has failed")
        return work(*args, **options)

    return fail


@pytest.mark.parametrize("at", range(8))
def test_whenever_the_machine_fails_there_is_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    old, draft = _crashed(tmp_path / "gpuwise.db", "before", "after"), _with_note(tmp_path / "draft", "new")
    count: list[int] = []
    with monkeypatch.context() as failing:
        for name in ("link", "replace", "rename", "unlink", "fsync"):
            failing.setattr(os, name, _failing(at, getattr(os, name), count))
        with contextlib.suppress(OSError):
            exchange(old, draft)
    assert _note(old) == ("new" if len(count) <= at or not draft.exists() else "after")


def test_a_damaged_database_is_exchanged_and_kept(tmp_path: Path) -> None:
    old, draft = _crashed(tmp_path / "gpuwise.db", "before", "after"), _with_note(tmp_path / "draft", "new")
    first, rest = old.read_bytes()[:4096], 4096
    old.write_bytes(b"\x55" * 4096 + old.read_bytes()[rest:])
    kept = exchange(old, draft)
    assert kept is not None
    assert sorted(path.name for path in tmp_path.glob("gpuwise.db*")) == ["gpuwise.db", kept.name]
    kept.write_bytes(first + kept.read_bytes()[rest:])  # repaired
    assert (_note(old), _note(kept)) == ("new", "after")


def test_a_log_that_is_in_use_is_kept_beside_its_database(tmp_path: Path) -> None:
    old, draft = _crashed(tmp_path / "gpuwise.db", "before", "after"), _with_note(tmp_path / "draft", "new")
    with closing(sqlite3.connect(old)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT note FROM notes").fetchone() == ("after",)
        kept = exchange(old, draft)
        assert kept is not None
        assert Path(f"{kept}-wal").stat().st_size > 0
        assert (_note(old), _note(kept)) == ("new", "after")
