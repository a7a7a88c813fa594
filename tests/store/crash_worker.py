"""Commits batch after batch and says so after each; a test kills it."""

from __future__ import annotations

import sys
from dataclasses import replace

from store_samples import full_attempt, full_audit, full_notification, job, line

from gpuwise.core.records import Batch, Snapshot
from gpuwise.store.sql import SqlStore, open_store

JOBS = LINES = 5


def batch(number: int) -> Batch:
    """The batch with a number: rows of every table."""
    uids = [str(number * JOBS + each) for each in range(JOBS)]
    first = number * LINES
    return Batch(
        jobs=[job(uid, idempotency_key=uid) for uid in uids],
        attempts=[full_attempt(uid, 1) for uid in uids],
        lines=[line(first + each, uids[0]) for each in range(LINES)],
        audit=[full_audit(target=str(number))],
        notifications=[replace(full_notification(), uid=uids[0])],
        snapshot=Snapshot(first, str(number)),
    )


def batches_in(store: SqlStore) -> int:
    """How many batches a store holds, each of them whole."""
    lines = store.lines(limit=10**9)
    count = len(lines) // LINES
    expected = [batch(number) for number in range(1, count + 1)]
    assert lines == [line for each in expected for line in each.lines]
    assert store.jobs(limit=10**9) == sorted(
        (job for each in expected for job in each.jobs), key=lambda job: -int(job.uid)
    )
    assert [entry for _, entry in store.audit(limit=10**9)] == [each.audit[0] for each in reversed(expected)]
    for notification in (each.notifications[0] for each in expected):
        assert store.notifications(notification.uid) == [notification]
    for attempt in (record for each in expected[-2:] for record in each.attempts):
        assert store.attempts(attempt.uid) == [attempt]
    if count:
        assert store.recover() == (expected[-1].snapshot, expected[-1].lines[1:])
    return count


def main() -> None:
    """Commits until it is killed."""
    store = open_store(sys.argv[1])
    number = batches_in(store)
    print("ready", flush=True)
    while True:
        number += 1
        store.commit(batch(number))
        print(number, flush=True)


if __name__ == "__main__":
    main()
