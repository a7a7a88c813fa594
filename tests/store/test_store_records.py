"""What is written is read back: every field of every record, also after the store was closed."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from store_samples import (
    ODD,
    ended,
    full_attempt,
    full_audit,
    full_job,
    full_notification,
    full_queue,
    full_request,
    full_token,
    job,
    left_at_default,
    line,
    request,
)

from gpuwise.core.job.life_cycle import ENDED, Status
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import (
    AttemptRecord,
    AuditEntry,
    Batch,
    JobRecord,
    JournalLine,
    QueueRecord,
    Snapshot,
    StoreError,
    TokenRecord,
    UserRole,
)
from gpuwise.store import schema
from gpuwise.store.sql import SqlStore, open_store


def everything() -> Batch:
    return Batch(
        lines=[line(1, "17-3"), JournalLine(2, 1 / 3, "Ödd", None, ODD)],
        jobs=[full_job()],
        attempts=[full_attempt()],
        audit=[full_audit()],
        notifications=[full_notification()],
        snapshot=Snapshot(1, ODD),
    )


@pytest.mark.parametrize(
    "record",
    [full_request(), full_job(), full_attempt(), full_audit(), full_notification(), full_token(), full_queue()],
    ids=lambda r: type(r).__name__,
)
def test_samples_leave_no_field_at_its_default(record: object) -> None:
    assert left_at_default(record) == (["gpu_frac", "roles", "terminal"] if isinstance(record, JobRequest) else [])


def test_all_fields_are_kept_and_are_there_after_a_restart(place: str) -> None:
    first = open_store(place)
    first.commit(everything())
    first.put_token(full_token())
    first.put_queue(full_queue())
    assert first.meta("epoch", "1.5") == "1.5"
    first.close()

    second = open_store(place)
    assert second.job("17-3") == full_job()
    assert second.attempts("17-3") == [full_attempt()]
    assert second.lines() == everything().lines
    assert second.recover() == (Snapshot(1, ODD), everything().lines[1:])
    assert second.audit() == [(1, full_audit())]
    assert second.notifications("17") == [full_notification()]
    assert second.tokens() == [full_token()]
    assert second.queues() == [full_queue()]
    assert second.meta("epoch", "2.5") == "1.5"
    second.close()


def test_defaults_are_kept(store: SqlStore) -> None:
    token = TokenRecord(id="t", digest="d", user="ann", role=UserRole.ADMIN, created_at=1.0)
    attempt = AttemptRecord(uid="1", number=1, placement="", started_at=1.0)
    part = job("2", asked={"gpu_frac": 0.25})
    store.commit(Batch(jobs=[job("1"), part], attempts=[attempt]))
    store.put_token(token)
    store.put_queue(QueueRecord(name="q"))
    assert (store.job("1"), store.job("2")) == (job("1"), part)
    assert store.attempts("1") == [attempt]
    assert store.tokens() == [token]
    assert store.queues() == [QueueRecord(name="q")]


def test_all_values_of_an_old_record_are_replaced(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("17-3", idempotency_key="old")]))
    store.commit(
        Batch(jobs=[full_job()], attempts=[AttemptRecord(uid="17-3", number=2, placement="n0", started_at=0.0)])
    )
    store.commit(Batch(attempts=[full_attempt()]))
    assert store.job("17-3") == full_job()
    assert store.attempts("17-3") == [full_attempt()]
    store.put_token(full_token(user="other", role=UserRole.USER, revoked_at=None))
    store.put_token(full_token())
    assert store.tokens() == [full_token()]
    store.put_queue(QueueRecord(name="team-a"))
    store.put_queue(full_queue())
    assert store.queues() == [full_queue()]


def test_the_last_of_two_records_of_one_job_in_a_batch_counts(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1", step=1.0), job("2"), job("1", step=2.0)]))
    assert [(each.uid, each.step) for each in store.live_jobs()] == [("1", 2.0), ("2", None)]


def test_a_new_store_is_empty(store: SqlStore) -> None:
    assert store.recover() == (None, [])
    assert (store.last_job_number(), store.last_sequence(), store.count_live("ann")) == (0, 0, 0)
    assert store.job("1") is None
    nothing = [
        store.live_jobs(), store.jobs(), store.by_idempotency_key("ann", "k"), store.run_times(request(), "ann"),
        store.attempts("1"), store.lines(), store.tokens(), store.queues(), store.audit(),
    ]  # fmt: skip
    assert nothing == [[]] * len(nothing)
    assert store.prune(ended_before=math.inf, keep_lines=0) == 0


def test_an_empty_batch_writes_nothing(store: SqlStore) -> None:
    store.commit(Batch())
    assert store.recover() == (None, [])


def test_text_that_a_database_cannot_hold_is_shown_as_such(store: SqlStore) -> None:
    """NUL has no place in PostgreSQL's text, and a lone surrogate none in UTF-8; a job's output can have both."""
    dirty, clean = "a\0b\udcffc", "a\ufffdb\ufffdc"
    store.commit(
        Batch(
            jobs=[job("1", user=dirty, why_ended=dirty, idempotency_key=dirty)],
            lines=[JournalLine(1, 0.0, "k", "1", dirty)],
            audit=[full_audit(target=dirty)],
        )
    )
    assert store.job("1") == job("1", user=clean, why_ended=clean, idempotency_key=clean)
    assert store.lines() == [JournalLine(1, 0.0, "k", "1", clean)]
    assert store.audit() == [(1, full_audit(target=clean))]
    assert [each.uid for each in store.by_idempotency_key(dirty, dirty)] == ["1"]
    assert store.count_live(dirty) == 1


def test_a_question_with_such_text_has_no_answer(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1")], lines=[line(1, "1")]))
    for text in ("\0", "\ud800", "1\0", "x" * 10_000):
        assert store.job(text) is None
        assert store.jobs(user=text) == store.jobs(name=text) == store.jobs(queue=text) == store.jobs(uids=[text]) == []
        assert store.jobs(statuses=[text]) == store.attempts(text) == store.lines(uid=text) == []
        assert store.delete_queue(text) is False


def test_a_loss_that_is_no_number_is_unknown(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1", loss=math.nan, step=math.inf, samples_per_s=-0.5)]))
    assert store.job("1") == job("1", loss=None, step=math.inf, samples_per_s=-0.5)


def test_a_record_that_cannot_be_a_job_is_refused(store: SqlStore) -> None:
    for uid in ("", "x", "1-", "-1", "01", "1-02", "1 ", "1-2-3", "٣", "1" * 19, "1-" + "1" * 19):
        with pytest.raises(StoreError, match="it must be a number such as 17, or 17-3"):
            store.commit(Batch(jobs=[job("5"), job(uid)], lines=[line(1)]))
    assert (store.jobs(), store.lines()) == ([], [])


def test_columns_are_the_fields_of_records() -> None:
    derived = {"number", "array_index", "queue", "name", "command_digest"}
    expected = {
        schema.jobs: {each.name for each in fields(JobRecord)} | derived,
        schema.attempts: {each.name for each in fields(AttemptRecord)},
        schema.journal: {each.name for each in fields(JournalLine)},
        schema.snapshots: {each.name for each in fields(Snapshot)},
        schema.tokens: {each.name for each in fields(TokenRecord)},
        schema.queues: {each.name for each in fields(QueueRecord)},
        schema.audit: {each.name for each in fields(AuditEntry)} | {"id"},
    }
    assert {table.name: set(table.c.keys()) for table in expected} == {t.name: names for t, names in expected.items()}


def test_live_is_what_the_life_cycle_says() -> None:
    assert set(schema.LIVE_STATUSES) == {each.name.lower() for each in set(Status) - ENDED}
    assert list(schema.STATUSES) == [each.name.lower() for each in Status]


def test_tokens_have_secrets_of_their_own(store: SqlStore) -> None:
    store.put_token(full_token(id="t1"))
    with pytest.raises(StoreError, match="contradicts"):
        store.put_token(full_token(id="t2"))
    store.put_token(full_token(id="t2", digest="other", created_at=0.0))
    assert [each.id for each in store.tokens()] == ["t2", "t1"]


def test_queues_come_by_name_and_can_be_forgotten(store: SqlStore) -> None:
    for name in ("b", "B", "a", "ä"):
        store.put_queue(QueueRecord(name=name))
    assert [each.name for each in store.queues()] == ["B", "a", "b", "ä"]
    assert store.delete_queue("a") is True
    assert store.delete_queue("a") is False
    assert [each.name for each in store.queues()] == ["B", "b", "ä"]


def test_audit_is_paged_newest_first(store: SqlStore) -> None:
    entries = [full_audit(target=str(number)) for number in range(1, 6)]
    store.commit(Batch(audit=entries[:2]))
    store.commit(Batch(audit=entries[2:]))
    assert store.audit() == [(5, entries[4]), (4, entries[3]), (3, entries[2]), (2, entries[1]), (1, entries[0])]
    assert [number for number, _ in store.audit(limit=2)] == [5, 4]
    assert [number for number, _ in store.audit(before=4, limit=2)] == [3, 2]
    assert store.audit(before=1) == []


def test_attempts_come_in_order(store: SqlStore) -> None:
    numbers = [10, 9, 1]
    store.commit(Batch(jobs=[job("1"), job("2")], attempts=[full_attempt("1", each) for each in numbers]))
    store.commit(Batch(attempts=[full_attempt("2", 1)]))
    assert store.attempts("1") == [full_attempt("1", each) for each in sorted(numbers)]


def test_jobs_of_one_submission_share_its_key(store: SqlStore) -> None:
    tasks = [job(f"2-{index}", idempotency_key="k") for index in (10, 9, 0)]
    store.commit(
        Batch(jobs=[*tasks, job("3", user="bob", idempotency_key="k"), job("4", idempotency_key="other"), job("5")])
    )
    assert store.by_idempotency_key("ann", "k") == tasks[::-1]
    assert [each.uid for each in store.by_idempotency_key("bob", "k")] == ["3"]
    assert store.by_idempotency_key("ann", "K") == []


def test_a_key_is_not_given_to_a_second_job(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job("1", idempotency_key="k")]))
    with pytest.raises(StoreError, match="contradicts"):
        store.commit(Batch(jobs=[job("2", idempotency_key="k")]))
    store.commit(Batch(jobs=[job("1", idempotency_key="k", status="running")]))
    assert [(each.uid, each.status) for each in store.by_idempotency_key("ann", "k")] == [("1", "running")]


def test_run_times_are_of_the_same_command_of_the_same_user(store: SqlStore) -> None:
    asked = {"name": "a", "queue": "q", "env": {"LR": "1"}, "gpus": 2}
    store.commit(
        Batch(
            jobs=[
                ended("1", at=100.0, started_at=40.0, peak_memory_bytes=5e9),
                ended("2-7", at=200.0, started_at=170.0, asked=asked),
                ended("3", at=300.0, status="failed"),
                ended("4", at=300.0, status="cancelled"),
                ended("5", at=300.0, user="bob"),
                ended("6", at=300.0, request=request("python", "train.py", "--lr", "1")),
                ended("7", at=300.0, request=request("python train.py")),
                ended("8", at=300.0, asked={"workdir": "/elsewhere"}),
                ended("9", at=300.0, started_at=None),
                job("10", status="running", started_at=1.0),
            ]
        )
    )
    assert store.run_times(request(name="new"), "ann") == [(30.0, 0.0), (60.0, 5e9)]
    assert store.run_times(request(), "ann", limit=1) == [(30.0, 0.0)]
    assert store.run_times(request(workdir="/elsewhere"), "ann") == [(10.0, 0.0)]
    assert store.run_times(request(), "nobody") == []


def test_a_run_time_leaves_out_how_long_a_job_was_away(store: SqlStore) -> None:
    halves = {"gpu_frac": 0.5}
    away = {"started_at": 0.0, "preemptions": 1, "gpu_s": 40.0}
    store.commit(
        Batch(
            jobs=[
                ended("1", at=1000.0, asked={"gpus": 4}, **away),  # 40 GPU s on 4 GPUs are 10 s
                ended("2", at=1001.0, asked=halves, **away),  # 40 GPU s on half a GPU are 80 s
                ended("3", at=1002.0, asked={"gpus": 0}, **away),  # no GPU time to go by
                ended("4", at=1003.0, **away | {"preemptions": 0, "attempts": 2}),  # failed, waited, ran again
            ]
        )
    )
    assert [seconds for seconds, _ in store.run_times(request(), "ann")] == [40.0, 1002.0, 80.0, 10.0]


def test_a_request_that_cannot_be_read_names_its_job(store: SqlStore) -> None:
    store.commit(Batch(jobs=[replace(full_job(), uid="5")]))
    for broken in ('{"command":[]}', "{", '{"command":["x"],"unheard_of":1}', "[]"):
        statement = schema.jobs.update().values(request=broken)
        store.database.write(lambda connection, statement=statement: connection.execute(statement))  # type: ignore[misc]
        with pytest.raises(StoreError, match="job 5: its request cannot be read"):
            store.job("5")


def test_one_record_that_cannot_be_read_does_not_hide_the_others(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.commit(Batch(jobs=[job(str(number)) for number in (1, 2, 3)]))
    store.database.write(lambda connection: connection.exec_driver_sql("UPDATE jobs SET request = '{' WHERE uid = '2'"))
    for _ in range(2):
        assert [record.uid for record in store.jobs()] == ["3", "1"]
    assert list(store.unreadable) == ["job 2"]
    assert caplog.text.count("job 2 cannot be read and is left out") == 1
    with pytest.raises(StoreError, match=r"job 2: its request cannot be read .*gpuwise restore FILE") as refused:
        store.job("2")
    assert store.place in str(refused.value)


def test_a_page_with_a_record_that_cannot_be_read_is_full(store: SqlStore) -> None:
    store.commit(Batch(jobs=[job(str(number)) for number in range(1, 8)]))
    store.database.write(lambda connection: connection.exec_driver_sql("UPDATE jobs SET request = '{' WHERE uid > '4'"))
    assert [record.uid for record in store.jobs(limit=2)] == ["4", "3"]  # a client takes a shorter page for the last
    assert [record.uid for record in store.jobs(limit=2, before="3")] == ["2", "1"]
    assert [record.uid for record in store.live_jobs()] == ["1", "2", "3", "4"]


def test_pages_go_on_after_a_job_whose_id_is_damaged(sqlite_store: SqlStore) -> None:
    store = sqlite_store
    store.commit(Batch(jobs=[job(uid) for uid in ("1", "2", "3", "4-0", "4-1", "5")]))
    for uid, damaged in (("4-1", "'4-x'"), ("3", "x'ff'"), ("5", "'9'")):
        store.database.write(
            lambda connection, uid=uid, damaged=damaged: connection.exec_driver_sql(  # type: ignore[misc]
                f"UPDATE jobs SET uid = {damaged}, request = '{{' WHERE uid = '{uid}'"
            )
        )
    assert [record.uid for record in store.jobs(limit=1)] == ["4-0"]
    assert [record.uid for record in store.jobs(limit=2)] == ["4-0", "2"]
    assert [record.uid for record in store.jobs(limit=1, statuses=("pending", "running"), before="4-0")] == ["2"]
    assert [record.uid for record in store.jobs()] == ["4-0", "2", "1"]
    "; ".join(store.unreadable).encode()  # for answers of the API


def test_an_audit_entry_that_cannot_be_read_does_not_hide_the_others(sqlite_store: SqlStore) -> None:
    store = sqlite_store
    store.commit(Batch(audit=[replace(full_audit(), target=str(number)) for number in range(6)]))
    for number, values in ((4, "at = 'soon'"), (5, "user = x'ff'")):
        store.database.write(
            lambda connection, number=number, values=values: connection.exec_driver_sql(  # type: ignore[misc]
                f"UPDATE audit SET {values} WHERE id = {number}"
            )
        )
    assert [(number, entry.target) for number, entry in store.audit(limit=3)] == [(6, "5"), (3, "2"), (2, "1")]
    assert [number for number, _ in store.audit(before=6)] == [3, 2, 1]
    assert store.unreadable.keys() == {"audit entry 4", "audit entry 5"}


BROKEN = "CAST(x'7b22686578223a22ff22' AS TEXT)"
"""Text that is not UTF-8, as after a flipped bit."""


def test_bytes_that_are_no_text_hide_no_other_row_and_are_not_quoted(
    sqlite_store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = sqlite_store
    attempts = [AttemptRecord(uid=uid, number=1, placement="box:0", started_at=1.0) for uid in ("1", "2")]
    store.commit(Batch(jobs=[job("1"), job("2", asked={"env": {"A": "hex"}})], attempts=attempts, lines=[line(1)]))
    for statement in (
        f"UPDATE jobs SET request = {BROKEN} WHERE uid = '2'",
        "UPDATE attempts SET placement = x'ff' WHERE uid = '2'",
    ):
        store.database.write(lambda connection, statement=statement: connection.exec_driver_sql(statement))  # type: ignore[misc]
    assert [record.uid for record in store.jobs()] == [record.uid for record in store.live_jobs()] == ["1"]
    assert [each.uid for each in store.attempts_between(0.0, 9.0)] == ["1"]
    assert store.attempts("2") == []
    assert store.unreadable.keys() == {"job 2", "attempt of job 2"}
    for table, column in (("snapshots", "body"), ("journal", "body")):
        store.commit(Batch(snapshot=Snapshot(0, "{}")))
        store.database.write(
            lambda connection, table=table, column=column: connection.exec_driver_sql(  # type: ignore[misc]
                f"UPDATE {table} SET {column} = {BROKEN}"
            )
        )
        with pytest.raises(
            StoreError, match=rf"table {table}, sequence \d cannot be read .*gpuwise restore FILE"
        ) as found:
            store.recover()
        assert "hex" not in str(found.value)
    assert "hex" not in caplog.text


def test_a_setting_that_must_be_a_number_is_named(store: SqlStore) -> None:
    assert store.number("epoch") == 0.0
    store.put_meta("epoch", "soon")
    with pytest.raises(StoreError, match=r"table meta: epoch is 'soon'; it must be a number; .*gpuwise restore FILE"):
        store.number("epoch")
