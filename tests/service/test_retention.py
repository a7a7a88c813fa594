"""Old jobs and their folders are deleted, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import Batch, JobRecord
from gpuwise.service.live.retention import DAY_S, Retention, remove_tree
from gpuwise.store.sql import SqlStore, open_store

NOW = 1000 * DAY_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(tmp_path / "store.db")
    yield opened
    opened.close()


def test_old_jobs_go_with_their_folders(store: SqlStore, tmp_path: Path) -> None:
    ended_days_ago = {"1": 31.0, "2": 29.0, "3": None}
    for uid, days in ended_days_ago.items():
        ended = {} if days is None else {"status": "succeeded", "ended_at": NOW - days * DAY_S}
        store.commit(Batch(jobs=[JobRecord(uid=uid, user="ada", request=JobRequest(command=("x",)), **ended)]))
    jobs = tmp_path / "jobs"
    for uid, changed_days_ago in {"1": 31.0, "2": 31.0, "3": 31.0, "4": 31.0, "5": 29.0}.items():
        (jobs / uid).mkdir(parents=True)
        os.utime(jobs / uid, times=(0.0, NOW - changed_days_ago * DAY_S))
    retention = Retention(store, jobs, keep_days=30.0)
    retention.delete_old(NOW)
    retention.close()
    assert {job.uid for job in store.jobs()} == {"2", "3"}
    # 4 and 5 belong to no job; 5 is too new to be deleted: its job may be about to be written.
    assert {folder.name for folder in jobs.iterdir()} == {"2", "3", "5"}


def test_one_record_that_cannot_be_read_keeps_its_folder_and_no_other(store: SqlStore, tmp_path: Path) -> None:
    ended = {"status": "succeeded", "ended_at": NOW - DAY_S}
    store.commit(Batch(jobs=[JobRecord(uid="2", user="ada", request=JobRequest(command=("x",)), **ended)]))
    store.database.write(lambda connection: connection.exec_driver_sql("UPDATE jobs SET request = '{'"))
    jobs = tmp_path / "jobs"
    for uid in ("1", "2", "3"):
        (jobs / uid).mkdir(parents=True)
        os.utime(jobs / uid, times=(0.0, NOW - 31 * DAY_S))
    (jobs / "4").symlink_to(tmp_path / "gone")  # as a folder that is renamed while folders are listed
    with closing(Retention(store, jobs, keep_days=30.0)) as retention:
        retention.delete_old(NOW)
    assert {folder.name for folder in jobs.iterdir()} == {"2", "4"}


def test_a_folder_is_deleted_whatever_its_job_has_put_there(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    (kept / "file").touch()
    (folder := tmp_path / "1").mkdir()
    (folder / "link").symlink_to(kept)
    os.mkfifo(folder / "pipe")
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(3000):  # deeper than Python recurses, and than a path may be long
        os.mkdir("deeper", dir_fd=inner)
        inner, outer = os.open("deeper", os.O_RDONLY, dir_fd=inner), inner
        os.close(outer)
    os.symlink(kept, "link", dir_fd=inner)
    os.mkfifo("pipe", dir_fd=inner)
    os.close(inner)
    remove_tree(folder)
    assert not folder.exists()
    assert (kept / "file").exists()


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    (kept / "file").touch()
    (tmp_path / "1").symlink_to(kept)
    with pytest.raises(OSError, match="1"):
        remove_tree(tmp_path / "1")
    assert (kept / "file").exists()
