"""What is forgotten, and what never is."""

from __future__ import annotations

import math

import pytest
from store_samples import ended, full_attempt, full_audit, full_token, job, line

from gpuwise.core.records import Batch, Snapshot
from gpuwise.store import prune
from gpuwise.store.sql import SqlStore


def uids(store: SqlStore) -> list[str]:
    return [each.uid for each in store.jobs()]


def test_jobs_that_ended_before_a_time_are_forgotten_with_their_attempts(store: SqlStore) -> None:
    jobs = [
        ended("1", at=99.0),
        ended("2", at=99.0, status="failed"),
        ended("3-1", at=99.0, status="cancelled"),
        ended("3-2", at=101.0),
        ended("4", at=100.0),
        job("5", status="running", started_at=1.0),
        job("6", status="failed"),
        job("7", status="pending", ended_at=50.0),
    ]
    attempts = [full_attempt("1", 1), full_attempt("1", 2), full_attempt("4", 1), full_attempt("5", 1)]
    store.commit(Batch(jobs=jobs, attempts=attempts, audit=[full_audit()]))
    assert store.prune(ended_before=100.0, keep_lines=0) == 3 + 2
    assert uids(store) == ["7", "6", "5", "4", "3-2"]
    assert store.attempts("1") == []
    assert store.attempts("4") == [full_attempt("4", 1)]
    assert store.audit() == [(1, full_audit())]
    assert store.prune(ended_before=100.0, keep_lines=0) == 0


def test_jobs_that_others_wait_for_are_kept_until_those_have_ended(store: SqlStore) -> None:
    old = [ended(uid, at=1.0) for uid in ("1", "2-0", "2-1", "3-0", "4")]
    waiting = job("9", held="dependency", asked={"after": ("1", "2", "3-0")})
    store.commit(Batch(jobs=[*old, waiting]))
    assert store.prune(ended_before=100.0, keep_lines=0) == 1
    assert uids(store) == ["9", "3-0", "2-0", "2-1", "1"]
    store.commit(Batch(jobs=[job("9", status="cancelled", asked={"after": ("1", "2", "3-0")})]))
    assert store.prune(ended_before=100.0, keep_lines=0) == 4
    assert uids(store) == ["9"]


def test_tokens_that_ended_before_a_time_are_forgotten(store: SqlStore) -> None:
    ends: dict[str, tuple[float | None, float | None]] = {
        "never": (None, None), "expired": (99.0, None), "revoked": (None, 99.0), "revoked early": (200.0, 99.0),
        "expires at it": (100.0, None), "expires later": (101.0, None), "in its grace": (None, 101.0),
    }  # fmt: skip
    for uid, (expires_at, revoked_at) in ends.items():
        store.put_token(full_token(id=uid, digest=uid, expires_at=expires_at, revoked_at=revoked_at))
    assert store.prune(ended_before=100.0, keep_lines=0) == 3
    assert {token.id for token in store.tokens()} == {"never", "expires at it", "expires later", "in its grace"}


def test_a_number_is_not_given_again_when_its_job_is_forgotten(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("7"), ended("8-5", at=1.0)]))
    store.prune(ended_before=math.inf, keep_lines=0)
    assert uids(store) == ["7"]
    assert store.last_job_number() == 8
    store.commit(Batch(jobs=[ended("9", at=1.0)]))
    store.prune(ended_before=math.inf, keep_lines=0)
    assert store.last_job_number() == 9


@pytest.mark.parametrize(
    ("snapshot", "keep_lines", "first_kept"),
    [
        (None, 0, 1),  # no snapshot: a restart needs all
        (30, 0, 31),  # what the snapshot stands for goes
        (30, 10, 31),  # the ten newest come after it anyway
        (30, 25, 16),  # the newest 25 of 40 are 16 to 40
        (30, 100, 1),
        (40, 0, 41),
        (40, 1, 40),
        (0, 0, 1),
    ],
)
def test_lines_before_the_snapshot_are_forgotten_but_the_newest(
    store: SqlStore, snapshot: int | None, keep_lines: int, first_kept: int
) -> None:
    lines = [line(number, "1") for number in range(1, 41)]
    store.commit(Batch(lines=lines, snapshot=None if snapshot is None else Snapshot(snapshot, "{}")))
    before = store.recover()
    assert store.prune(ended_before=0.0, keep_lines=keep_lines) == first_kept - 1
    assert store.lines() == lines[first_kept - 1 :]
    assert store.recover() == before
    assert store.last_sequence() == 40


def test_only_the_last_snapshot_counts(store: SqlStore) -> None:
    store.commit(Batch(lines=[line(1), line(2)], snapshot=Snapshot(1, "one")))
    store.commit(Batch(lines=[line(3)], snapshot=Snapshot(2, "two")))
    assert store.recover() == (Snapshot(2, "two"), [line(3)])
    store.commit(Batch(snapshot=Snapshot(2, "two again")))
    assert store.recover() == (Snapshot(2, "two again"), [line(3)])


def test_a_lot_is_forgotten_in_several_goes(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "JOBS_AT_ONCE", 3)
    monkeypatch.setattr(prune, "LINES_AT_ONCE", 7)
    jobs = [ended(str(number), at=1.0) for number in range(1, 11)]
    lines = [line(number) for number in range(1, 31)]
    store.commit(Batch(jobs=jobs, lines=lines, attempts=[full_attempt("10", 1)], snapshot=Snapshot(30, "")))
    assert store.prune(ended_before=2.0, keep_lines=1) == 10 + 1 + 29
    assert (store.jobs(), store.lines()) == ([], lines[29:])
