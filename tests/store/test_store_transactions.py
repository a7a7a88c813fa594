"""A batch is kept as a whole or not at all, whoever reads or writes at the same time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection
from store_samples import ended, full_attempt, full_audit, full_token, job, line

from gpuwise.core.records import Batch, Snapshot, StoreError
from gpuwise.store import database
from gpuwise.store.schema import jobs
from gpuwise.store.sql import SqlStore, open_store


def kept() -> Batch:
    return Batch(
        jobs=[job("1", idempotency_key="k"), ended("2", at=5.0)],
        attempts=[full_attempt("1", 1)],
        lines=[line(1, "1"), line(2)],
        audit=[full_audit()],
        snapshot=Snapshot(1, "one"),
    )


def refused(fault: Callable[[Batch], None]) -> Batch:
    """A batch that changes and adds rows of every table, one of which cannot be written."""
    batch = Batch(
        jobs=[job("1", status="running", idempotency_key="k"), job("3")],
        attempts=[replace(full_attempt("1", 1), outcome="lost"), full_attempt("3", 1)],
        lines=[line(3, "3"), line(4)],
        audit=[full_audit(action="suspend")],
        snapshot=Snapshot(3, "three"),
    )
    fault(batch)
    return batch


def everything_in(store: SqlStore) -> list[object]:
    uids = ("1", "2", "3", "4")
    return [store.jobs(), [store.attempts(each) for each in uids], store.lines(), store.audit(), store.recover()]


FAULTS: dict[str, Callable[[Batch], None]] = {
    "key of another job": lambda batch: batch.jobs.append(job("4", idempotency_key="k")),
    "exit code beyond 64 bits": lambda batch: batch.jobs.append(job("4", exit_code=2**70)),
    "time that is none": lambda batch: batch.jobs.append(job("4", submitted_at=None)),
    "value of no known type": lambda batch: batch.jobs.append(job("4", placement=object())),
    "attempt of no job": lambda batch: batch.attempts.append(full_attempt("4", 1)),
    "line that is there": lambda batch: batch.lines.append(line(2)),
    "line given twice": lambda batch: batch.lines.append(line(4)),
    "audit by nobody": lambda batch: batch.audit.append(full_audit(user=None)),
    "snapshot of nothing": lambda batch: setattr(batch, "snapshot", Snapshot(3, None)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_nothing_of_a_batch_with_one_bad_row_is_kept(store: SqlStore, fault: Callable[[Batch], None]) -> None:
    store.commit(kept())
    before = everything_in(store)
    with pytest.raises(StoreError, match=rf"^store {store.place}: "):
        store.commit(refused(fault))
    assert everything_in(store) == before
    good = refused(lambda batch: None)
    store.commit(good)
    assert store.lines() == [*kept().lines, *good.lines]
    assert store.recover() == (Snapshot(3, "three"), [line(4)])
    assert store.attempts("1") == good.attempts[:1]


def test_whoever_reads_sees_a_batch_whole_or_not_at_all(store: SqlStore) -> None:
    pair, rounds, enough = ("1", "2"), 50, 6
    store.commit(Batch(jobs=[job(uid, step=0.0) for uid in pair]))
    done = threading.Event()

    def read(seen: list[float | None]) -> bool:
        torn = False
        while not done.is_set():
            first, second = store.jobs(uids=pair)
            torn |= first.step != second.step
            seen.append(first.step)
        return torn

    seen_by: list[list[float | None]] = [[] for _ in range(4)]
    with ThreadPoolExecutor(4) as readers:
        answers = [readers.submit(read, seen) for seen in seen_by]
        for step in range(1, 100 * rounds):
            store.commit(Batch(jobs=[job(uid, step=float(step)) for uid in pair], lines=[line(step)]))
            if step >= rounds and min(len(set(seen)) for seen in seen_by) >= enough:
                break
        done.set()
    assert not any(answer.result() for answer in answers)
    for seen in seen_by:
        assert seen == sorted(seen, key=lambda step: step or 0.0), "a reader went back in time"
        assert len(set(seen)) >= enough, "readers waited for the writer instead of reading beside it"


def test_readers_do_not_wait_for_an_unfinished_write(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1", status="running")]))
    written, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        connection.execute(jobs.update().values(status="failed"))
        written.set()
        assert go_on.wait(10)

    with ThreadPoolExecutor(1) as writer:
        unfinished = writer.submit(store.database.write, slow)
        assert written.wait(10)
        try:
            assert [each.status for each in store.jobs()] == ["running"]
        finally:
            go_on.set()
        unfinished.result()
    assert [each.status for each in store.jobs()] == ["failed"]


def test_writers_wait_for_each_other(store: SqlStore) -> None:
    def write(number: int) -> None:
        if number % 3:
            store.commit(Batch(jobs=[job(str(number))], lines=[line(number)]))
        else:
            store.put_token(full_token(id=str(number), digest=str(number)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(1, 61)))
    assert len(store.jobs()) == len(store.lines()) == 40
    assert len(store.tokens()) == 20


def test_a_setting_has_one_value_whoever_asks_first(place: str) -> None:
    """Two stores stand for two processes; each thread offers a value of its own."""
    stores = [open_store(place) for _ in range(2)]
    start = threading.Barrier(16)

    def ask(number: int) -> str:
        start.wait(10)
        return stores[number % 2].meta("secret", f"offer {number}")

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(16)))
    assert len(set(answers)) == 1
    assert answers[0].startswith("offer ")
    assert stores[0].meta("secret", "late") == stores[1].meta("secret", "late") == answers[0]
    assert stores[0].meta("other", "") == ""
    for store in stores:
        store.close()


def test_another_process_that_holds_the_file_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT_S", 0.05)
    path = tmp_path / "gpuwise.db"
    store = open_store(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process has locked it; try again when that process has ended"):
        store.commit(Batch(jobs=[job("1")]))
    assert store.jobs() == []
    other.close()
    store.commit(Batch(jobs=[job("1")]))
    assert store.jobs() == [job("1")]
    store.close()


def test_more_readers_than_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(database, "READERS", 1)
    monkeypatch.setattr(database, "MAX_READERS", 1)
    store = open_store(tmp_path / "gpuwise.db")

    def read_while_reading(_connection: Connection) -> None:
        with pytest.raises(StoreError, match="too many reads at once"):
            store.jobs()

    store.database.query(read_while_reading)
    assert store.jobs() == []
    store.close()


def test_a_closed_store_says_so(store: SqlStore) -> None:
    store.close()
    with pytest.raises(StoreError, match="it is closed"):
        store.jobs()
    with pytest.raises(StoreError, match="it is closed"):
        store.commit(Batch(jobs=[job("1")]))
    store.close()
