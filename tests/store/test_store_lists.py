"""Lists of jobs and journal lines: filters, order, pages, and that an index answers each question."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event
from store_samples import ended, job, line, request

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.life_cycle import ENDED, Status
from gpuwise.core.records import Batch, JobRecord, StoreError
from gpuwise.store.sql import MAX_UIDS, SqlStore

STATUSES = ("pending", "running", "suspended", "succeeded", "failed", "cancelled")
USERS, QUEUES, NAMES = ("ann", "bob"), ("default", "team"), ("", "resnet", "bert")


def order(record: JobRecord) -> tuple[int, int]:
    """Newest first; the tasks of an array in the order of their indexes."""
    number, _, index = record.uid.partition("-")
    return -int(number), int(index or -1)


def many_jobs(rng: random.Random) -> list[JobRecord]:
    """60 submissions, every third one an array."""
    found: list[JobRecord] = []
    for number in range(1, 61):
        user, queue, name = rng.choice(USERS), rng.choice(QUEUES), rng.choice(NAMES)
        indexes = rng.sample(range(120), 5) if number % 3 == 0 else []
        uids = [f"{number}-{index}" for index in indexes] or [str(number)]
        asked = request(queue=queue, name=name)
        found += [job(uid, user, status=rng.choice(STATUSES), request=asked) for uid in uids]
    rng.shuffle(found)
    return found


def matches(record: JobRecord, asked: dict[str, Any]) -> bool:
    """What a filter means, without SQL."""
    uids = asked.get("uids", ())
    return (
        asked.get("user") in (None, record.user)
        and asked.get("queue") in (None, record.request.queue)
        and asked.get("name") in (None, record.request.name)
        and (not asked.get("statuses") or record.status in asked["statuses"])
        and (not uids or record.uid in uids or record.uid.partition("-")[0] in uids)
        and ("before" not in asked or order(record) > order(job(asked["before"])))
    )


def some_filter(rng: random.Random, jobs: list[JobRecord]) -> dict[str, Any]:
    """A filter by any of what can be filtered by, each as often as not."""
    uids = [each.uid for each in rng.sample(jobs, 8)]
    choices: dict[str, Any] = {
        "user": rng.choice(USERS),
        "queue": rng.choice(QUEUES),
        "name": rng.choice(NAMES),
        "statuses": rng.sample((*STATUSES, "unheard of"), rng.randint(1, 4)) + ["pending"] * rng.randint(0, 1),
        "uids": [*uids, *(each.partition("-")[0] for each in uids[:4]), "999", "no-uid"],
        "before": rng.choice([*uids, "30", "31", "30-50"]),
    }
    return {name: value for name, value in choices.items() if rng.random() < 0.4}


def test_filters_and_pages_are_what_they_mean(store: SqlStore) -> None:
    rng = random.Random(7)
    jobs = many_jobs(rng)
    store.commit(Batch(jobs=jobs))
    sizes = set()
    for _ in range(100):
        asked = some_filter(rng, jobs)
        expected = sorted((each for each in jobs if matches(each, asked)), key=order)
        limit = rng.choice([0, 1, 3, 1000])
        assert store.jobs(**asked, limit=limit) == expected[:limit], asked
        sizes.add(len(expected))
    assert len(sizes) > 20, "filters that find nothing prove nothing"


def test_pages_follow_each_other_without_gap_or_repetition(store: SqlStore) -> None:
    jobs = many_jobs(random.Random(8))
    store.commit(Batch(jobs=jobs))
    for filters in ({}, {"user": "ann"}, {"statuses": ["failed", "running", "pending"]}):
        pages: list[JobRecord] = []
        while page := store.jobs(**filters, limit=7, before=pages[-1].uid if pages else None):  # type: ignore[arg-type]
            pages += page
        assert pages == sorted((each for each in jobs if matches(each, filters)), key=order)


def test_live_jobs_come_in_the_order_of_submission(store: SqlStore) -> None:
    jobs = many_jobs(random.Random(9))
    store.commit(Batch(jobs=jobs))
    live = [each for each in jobs if each.status in ("pending", "running", "suspended")]
    assert store.live_jobs() == sorted(live, key=lambda each: (-order(each)[0], order(each)[1]))
    for user in (*USERS, "carl"):
        assert store.count_live(user) == sum(each.user == user for each in live)


def test_every_status_but_an_end_is_live(store: SqlStore) -> None:
    for status in Status:
        store.commit(Batch(jobs=[job("1", status=status.name.lower())]))
        assert store.count_live("ann") == len(store.live_jobs()) == (status not in ENDED)


def test_the_last_number_is_that_of_a_job_or_an_array(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("9"), job("10-99"), job("8")]))
    assert store.last_job_number() == 10
    store.commit(Batch(jobs=[job("123456789012345678")]))
    assert store.last_job_number() == 123456789012345678
    assert [each.uid for each in store.jobs(uids=["123456789012345678"])] == ["123456789012345678"]


def test_numbers_beyond_all_bounds_are_harmless(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1")], lines=[line(1)]))
    huge = 10**30
    assert len(store.jobs(limit=huge)) == len(store.lines(limit=huge)) == 1
    assert store.lines(after=huge) == store.audit(before=huge, limit=huge) == []
    assert len(store.lines(after=-huge)) == 1
    assert store.jobs(limit=-1) == store.lines(limit=-huge) == []
    assert store.jobs(uids=[str(huge), f"1-{huge}"]) == []


def test_a_page_begins_after_a_job(store: SqlStore) -> None:
    for text in ("", "seventeen", "17-", str(10**30)):
        with pytest.raises(
            GpuwiseError, match=r"before is '.*'; it must be the id of a job, such as 17 or 17-3"
        ) as raised:
            store.jobs(before=text)
        assert not isinstance(raised.value, StoreError)


def test_very_many_jobs_can_be_asked_for_by_name(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1"), job("7000"), job("70000")]))
    asked = [str(number) for number in range(MAX_UIDS)]
    assert [each.uid for each in store.jobs(uids=asked)] == ["7000", "1"]
    all_statuses = [each.name.lower() for each in Status]
    assert [each.uid for each in store.jobs(uids=asked, statuses=all_statuses)] == ["7000", "1"]
    assert [each.uid for each in store.jobs(statuses=[*asked, *STATUSES], limit=2)] == ["70000", "7000"]
    with pytest.raises(GpuwiseError, match=f"uids has {MAX_UIDS + 1} ids; it may have up to {MAX_UIDS}"):
        store.jobs(uids=[*asked, "70000"])


def test_lines_come_in_order_after_a_number_and_of_a_job(store: SqlStore) -> None:
    lines = [line(number, uid=[None, "1", "1-1", "11"][number % 4]) for number in range(1, 41)]
    store.commit(Batch(lines=lines[:30]))
    store.commit(Batch(lines=lines[30:]))
    assert store.lines() == lines
    assert store.lines(after=38) == lines[38:]
    assert store.lines(after=3, limit=2) == lines[3:5]
    assert store.lines(uid="1", after=5, limit=3) == [each for each in lines[5:] if each.uid == "1"][:3]
    assert store.lines(uid="2") == []
    assert store.last_sequence() == 40


def test_lines_are_never_written_twice(store: SqlStore) -> None:
    store.commit(Batch(lines=[line(1), line(2)]))
    with pytest.raises(StoreError, match="contradicts"):
        store.commit(Batch(lines=[line(2, kind="other"), line(3)]))
    assert store.lines() == [line(1), line(2)]


Plans = Callable[[], list[str]]


@pytest.fixture
def plans(sqlite_store: SqlStore) -> Iterator[Plans]:
    """How SQLite answers what it was asked since the last call."""
    asked: list[tuple[str, Any]] = []
    engine = sqlite_store.database.readers

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    def explain() -> list[str]:
        event.remove(engine, "before_cursor_execute", note)
        with engine.connect() as connection:
            steps = [
                str(row[3])
                for statement, parameters in asked
                for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
            ]
        asked.clear()
        event.listen(engine, "before_cursor_execute", note)
        return steps

    event.listen(engine, "before_cursor_execute", note)
    yield explain
    event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "jobs_number"),
        ({"before": "5"}, "jobs_number"),
        ({"queue": "team", "name": "x"}, "jobs_number"),
        ({"user": "ann"}, "jobs_user"),
        ({"user": "ann", "name": "x", "before": "5-3"}, "jobs_user"),
        ({"statuses": ["failed"], "queue": "team"}, "jobs_status"),
        ({"statuses": ["failed", "running"], "before": "5"}, "jobs_status"),
        ({"user": "ann", "statuses": ["failed", "running"], "name": "x"}, "jobs_user_status"),
    ],
)
def test_an_index_gives_jobs_in_order(sqlite_store: SqlStore, plans: Plans, asked: dict[str, Any], index: str) -> None:
    """Nothing is sorted but the few that are merged from pages of several statuses."""
    sqlite_store.jobs(**asked)
    steps = plans()
    looked_up = [step for step in steps if "jobs" in step.split() and "USING" in step]
    statuses = len(asked.get("statuses", ()))
    assert len(looked_up) == max(statuses, 1), steps
    assert all(f"INDEX {index} " in step + " " for step in looked_up), steps
    assert sum("TEMP B-TREE" in step for step in steps) == (statuses if statuses > 1 else 0), steps


def test_an_index_answers_every_other_question(sqlite_store: SqlStore, plans: Plans) -> None:
    questions: dict[str, Callable[[SqlStore], object]] = {
        "jobs_status": lambda store: store.live_jobs(),
        "jobs_user_status": lambda store: store.count_live("ann"),
        "sqlite_autoindex_jobs_1": lambda store: store.job("1"),
        "jobs_idempotency": lambda store: store.by_idempotency_key("ann", "k"),
        "jobs_run_times": lambda store: store.run_times(request(), "ann"),
        "journal_uid": lambda store: store.lines(uid="1", after=5),
        "INTEGER PRIMARY KEY": lambda store: store.lines(after=5),
        "sqlite_autoindex_attempts_1": lambda store: store.attempts("1"),
    }
    sqlite_store.commit(Batch(jobs=[job("1")]))
    for index, ask in questions.items():
        ask(sqlite_store)
        steps = plans()
        assert any(index in step and step.startswith("SEARCH") for step in steps), (index, steps)
    assert sqlite_store.prune(ended_before=5.0, keep_lines=0) == 0
    assert any("INDEX jobs_ended " in step for step in plans())
    sqlite_store.jobs(uids=["1", "2-3"])
    assert {"jobs_number", "sqlite_autoindex_jobs_1"} <= {word for step in plans() for word in step.split()}


def test_a_job_that_ended_is_found_under_its_new_status(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1", status="running")]))
    store.commit(Batch(jobs=[ended("1", at=50.0)]))
    assert store.jobs(statuses=["running"]) == store.jobs(user="ann", statuses=["running", "pending"]) == []
    assert store.jobs(user="ann", statuses=["succeeded"]) == [ended("1", at=50.0)]
