"""A full disk: the write is refused as a whole, what is there can be read, and writing goes on when there is room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import crash_worker
import pytest
from store_samples import job

from gpuwise.core.records import Batch, StoreError
from gpuwise.store.sql import SqlStore, open_store


def fill(store: SqlStore) -> int:
    """Commits until a batch is refused; how many were kept."""
    kept = 0

    def commit_all() -> None:
        nonlocal kept
        while kept < 5000:
            store.commit(crash_worker.batch(kept + 1))
            kept += 1

    with pytest.raises(StoreError, match="the disk is full"):
        commit_all()
    return kept


def limit_pages(store: SqlStore, pages: int) -> None:
    store.database.write(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}"))


def test_a_file_that_may_not_grow(sqlite_store: SqlStore) -> None:
    limit_pages(sqlite_store, 100)
    kept = fill(sqlite_store)
    assert kept > 0
    for _ in range(3):
        with pytest.raises(StoreError, match=f"^store {sqlite_store.place}: the disk is full; free some space"):
            sqlite_store.commit(crash_worker.batch(kept + 1))
        assert crash_worker.batches_in(sqlite_store) == kept
    limit_pages(sqlite_store, 10_000)
    sqlite_store.commit(crash_worker.batch(kept + 1))
    assert crash_worker.batches_in(sqlite_store) == kept + 1


def test_a_disk_without_room(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("1m")
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    store = open_store(disk / "gpuwise.db")
    kept = fill(store)
    assert crash_worker.batches_in(store) == kept > 0
    ballast.unlink()
    store.commit(crash_worker.batch(kept + 1))
    assert crash_worker.batches_in(store) == kept + 1
    store.close()
    again = open_store(disk / "gpuwise.db")
    assert crash_worker.batches_in(again) == kept + 1
    again.close()


def test_a_disk_without_room_for_the_tables(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("1m")
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    with pytest.raises(StoreError, match="the disk is full"):
        open_store(disk / "gpuwise.db")
    ballast.unlink()
    store = open_store(disk / "gpuwise.db")
    store.commit(Batch(jobs=[job("1")]))
    assert store.jobs() == [job("1")]
    store.close()
