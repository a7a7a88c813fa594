"""Notifications in the store: which is sent next, what is recorded of those that fail, and what is kept for them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from store_samples import ended, full_notification, job, line

from gpuwise.core.notification import Notification
from gpuwise.core.records import Batch, StoreError
from gpuwise.store.sql import SqlStore


def note(uid: str, position: int = 0, user: str = "ann", to: str = "https://a", next_at: float = 0.0) -> Notification:
    return Notification(uid=uid, position=position, user=user, destination=to, created_at=1.0, next_at=next_at)


def test_the_one_that_is_due_first_is_next_but_for_those_that_are_busy(store: SqlStore) -> None:
    late, early, other, bobs = (
        note("1", next_at=9.0),
        note("2", next_at=1.5),
        note("3", to="https://b"),
        note("4", user="bob"),
    )
    other, bobs = replace(other, next_at=2.0), replace(bobs, next_at=3.0)
    store.commit(Batch(notifications=[late, early, other, bobs]))
    assert store.next_notification((), ()) == early
    assert store.next_notification([("ann", "https://a")], ()) == other
    assert store.next_notification([("bob", "https://a")], ()) == early
    assert store.next_notification([("ann", "https://a"), ("ann", "https://b")], ()) == bobs
    assert store.next_notification((), ["ann"]) == bobs
    assert store.next_notification((), ["ann", "bob"]) is None


@pytest.mark.parametrize(
    "damage", ["next_at = 'soon'", "next_at = x'00'", "uid = x'ff'", "uid = CAST(x'ff' AS TEXT)", "tries = 'x'"]
)
def test_one_that_cannot_be_read_is_never_next_and_others_are(sqlite_store: SqlStore, damage: str) -> None:
    store, good = sqlite_store, note("2", next_at=9.0)
    store.commit(Batch(notifications=[note("1", next_at=1.0)]))
    store.database.write(lambda connection: connection.exec_driver_sql(f"UPDATE notifications SET {damage}"))
    assert store.next_notification((), ()) is None
    store.commit(Batch(notifications=[good]))
    assert store.next_notification((), ()) == good
    assert store.notifications("1") == []
    (left_out,) = store.unreadable
    assert left_out.startswith("notification of job ")
    left_out.encode()


def test_what_was_sent_is_deleted_and_what_was_given_up_is_shown_and_not_sent(store: SqlStore) -> None:
    first, second = note("1", 0), note("1", 1)
    store.commit(Batch(notifications=[second, first]))
    assert store.notifications("1") == [first, second]
    store.delete_notification("1", 0)
    given_up = replace(second, tries=32, error="it answered with HTTP 500", given_up_at=5.0)
    store.put_notification(given_up)
    assert store.next_notification((), ()) is None
    assert store.notifications("1") == [given_up]
    assert store.notifications("2") == []


def test_jobs_are_kept_until_their_ends_are_sent(store: SqlStore) -> None:
    """Of an array all tasks are kept: the notification is about all of them."""
    jobs = [ended("1", at=1.0), ended("2-0", at=1.0), ended("2-1", at=1.0), ended("3", at=1.0)]
    given_up = replace(note("3"), given_up_at=50.0)
    store.commit(Batch(jobs=jobs, notifications=[note("1"), note("2"), given_up]))
    assert store.prune(ended_before=40.0, keep_lines=0) == 1
    assert store.notifications("3") == [given_up], "it was given up later than that"
    assert store.prune(ended_before=100.0, keep_lines=0) == 1
    assert store.notifications("3") == []
    for uid in ("1", "2"):
        store.delete_notification(uid, 0)
    assert store.prune(ended_before=math.inf, keep_lines=0) == 3


def test_a_batch_that_is_refused_leaves_no_notification(store: SqlStore) -> None:
    store.commit(Batch(lines=[line(1)]))
    with pytest.raises(StoreError, match="contradicts what is stored"):
        store.commit(Batch(notifications=[note("1")], lines=[line(1)]))
    with pytest.raises(StoreError, match="contradicts what is stored"):
        store.commit(Batch(lines=[line(1)], notifications=[note("1")]))
    assert store.next_notification((), ()) is None
    store.commit(Batch(jobs=[job("1")], notifications=[full_notification()]))
    assert store.notifications("17") == [full_notification()]
