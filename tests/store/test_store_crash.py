"""What was acknowledged survives: the service killed, the log cut short, the server killed and started again."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import crash_worker
import pytest
from store_samples import job, line

from gpuwise.core.records import Batch, StoreError
from gpuwise.store.sql import SqlStore, open_store
from postgres import PostgresServer


def killed_after(place: str, batches: int) -> int:
    """The last batch that a process acknowledged before it was killed, after this many at least."""
    command = [sys.executable, crash_worker.__file__, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline() == "ready\n"
            last = [worker.stdout.readline() for _ in range(batches)][-1]
        finally:
            worker.kill()
        return int((last + worker.stdout.read()).split()[-1])


def test_acknowledged_batches_survive_kill_9_and_none_is_there_by_half(place: str) -> None:
    rng = random.Random(place)
    acknowledged = 0
    for _ in range(2):
        last = killed_after(place, rng.randrange(5, 50))
        assert last > acknowledged
        store = open_store(place)
        found = crash_worker.batches_in(store)
        store.close()
        assert found in (last, last + 1), "only the batch that was under way may be there without being acknowledged"
        acknowledged = found


def test_a_log_cut_anywhere_holds_whole_batches(sqlite_store: SqlStore, tmp_path: Path) -> None:
    """A power cut leaves any first part of what was not synced yet; each commit is synced before it returns."""
    source = Path(sqlite_store.place)
    log = source.with_name(source.name + "-wal")
    sizes = []
    for number in range(1, 6):
        sqlite_store.commit(crash_worker.batch(number))
        sizes.append(log.stat().st_size)
    assert sizes == sorted(set(sizes)), "every batch makes the log longer"
    rng = random.Random(5)
    cuts = [*sizes, *(size - 1 for size in sizes), *(rng.randrange(sizes[-1]) for _ in range(6))]
    for cut in cuts:
        copy = tmp_path / "copy" / source.name
        copy.parent.mkdir()
        shutil.copy(source, copy)
        copy.with_name(log.name).write_bytes(log.read_bytes()[:cut])
        store = open_store(copy)
        assert crash_worker.batches_in(store) == sum(size <= cut for size in sizes)
        store.close()
        shutil.rmtree(copy.parent)


def test_sqlite_syncs_every_commit(sqlite_store: SqlStore) -> None:
    """FULL is 2; in the write-ahead log NORMAL would lose the last commits in a power cut."""

    def settings(connection: object) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]  # type: ignore[attr-defined]

    assert sqlite_store.database.write(settings) == ["wal", 2, 1]


def test_postgres_commits_are_on_disk_even_if_the_server_is_set_not_to(postgres: PostgresServer) -> None:
    place = postgres.new_place().replace("options=", "options=-csynchronous_commit%3Doff%20")
    store = open_store(place)
    shown = store.database.write(lambda connection: connection.exec_driver_sql("SHOW synchronous_commit").scalar())
    store.close()
    assert shown == "on"


def test_a_server_that_was_killed_and_started_again_is_found_again(
    postgres: PostgresServer, postgres_store: SqlStore
) -> None:
    store = postgres_store
    store.commit(Batch(jobs=[job("1")], lines=[line(1)]))
    postgres.kill()
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match="the server cannot be reached; check that it runs, and the network"):
                store.commit(Batch(jobs=[job("2")], lines=[line(2)]))
            with pytest.raises(StoreError, match="the server cannot be reached"):
                store.jobs()
    finally:
        postgres.start()
    assert store.jobs() == [job("1")]
    store.commit(Batch(jobs=[job("2")], lines=[line(2)]))
    assert store.recover() == (None, [line(1), line(2)])


def test_a_restart_between_two_writes_goes_unnoticed(postgres: PostgresServer, postgres_store: SqlStore) -> None:
    postgres_store.commit(Batch(lines=[line(1)]))
    assert postgres_store.last_sequence() == 1
    postgres.kill()
    postgres.start()
    postgres_store.commit(Batch(lines=[line(2)]))
    assert postgres_store.lines() == [line(1), line(2)]


def test_a_connection_that_breaks_during_the_commit_leaves_it_open(postgres: PostgresServer) -> None:
    """Nobody can tell whether such a write was kept without reading; it must not be sent again on a guess."""
    place = postgres.new_place()
    store = open_store(place)
    postgres.execute(
        place,
        """
        CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER breaks AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.sequence = 2) EXECUTE FUNCTION break();
        """,
    )
    store.commit(Batch(lines=[line(1)]))
    with pytest.raises(StoreError, match="the connection was lost during a commit; read the data"):
        store.commit(Batch(lines=[line(2)]))
    assert store.lines() == [line(1)]
    store.commit(Batch(lines=[line(3)]))
    assert store.lines() == [line(1), line(3)]
    store.close()
