"""Notifications are recorded with the ends of jobs, in the same transaction, and once per array."""

from __future__ import annotations

import pytest
from world import Bench, request

from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import Batch, Store, StoreError
from gpuwise.live import failures

HOOK, MAIL = "https://hooks.example.org/x", "mailto:ada@example.org"


def waiting(store: Store, *uids: str) -> list[tuple[str, int, str]]:
    return [(each.uid, each.position, each.destination) for uid in uids for each in store.notifications(uid)]


def asked(duration_s: float = 10.0, **more: object) -> JobRequest:
    return JobRequest(command=("true",), duration_s=duration_s, notify=(HOOK,), **more)  # type: ignore[arg-type]


def test_each_address_is_notified_of_a_job_that_succeeded_failed_or_was_cancelled(store: Store) -> None:
    bench = Bench(store)
    woken: list[int] = []
    bench.controller.on_notifications(lambda: woken.append(len(waiting(store, "1", "2", "3", "4"))))
    both = JobRequest(command=("true",), duration_s=10.0, notify=(HOOK, MAIL))
    bench.submit(both, asked(), asked(), request())
    assert waiting(store, "1", "2", "3", "4") == []
    bench.world.fail("2")
    bench.controller.cancel(["3"], "ada")
    bench.settle()
    assert [store.job(uid).status for uid in ("1", "2", "3", "4")] == ["succeeded", "failed", "cancelled", "succeeded"]
    hook = "https://hooks.example.org"
    assert waiting(store, "1", "2", "3", "4") == [("1", 0, hook), ("1", 1, "mailto:"), ("2", 0, hook), ("3", 0, hook)]
    assert woken, "the sender is woken"
    assert woken[-1] == 4, "when they can be read"


def test_a_failure_that_is_tried_again_is_no_end_and_neither_is_a_requeue(store: Store) -> None:
    bench = Bench(store)
    bench.submit(asked(retries=1), asked())
    bench.controller.turn()
    bench.world.fail("1")
    bench.controller.turn()
    bench.controller.requeue(["2"], "ada")
    bench.controller.turn()
    assert waiting(store, "1", "2") == []
    bench.settle()
    assert len(waiting(store, "1", "2")) == 2
    assert [store.job(uid).attempts for uid in ("1", "2")] == [2, 2]


def test_an_array_is_notified_of_when_its_last_task_has_ended(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    bench.submit(asked(array=(0, 1, 2)))
    tasks = ["1-0", "1-1", "1-2"]
    for _ in range(100):
        bench.controller.turn()
        ended = [uid for uid in tasks if bench.controller.live(uid) is None]
        assert (waiting(store, "1") == []) == (len(ended) < 3)
        if len(ended) == 3:
            break
    assert waiting(store, "1", *tasks) == [("1", 0, "https://hooks.example.org")]


def test_tasks_that_end_in_one_turn_are_one_end(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    bench.submit(asked(array=(0, 1, 2)))
    bench.controller.cancel(["1-0", "1-1", "1-2"], "ada")
    bench.settle()
    assert len(waiting(store, "1", "1-0", "1-1", "1-2")) == 1


def test_an_array_is_notified_of_once_if_the_service_was_restarted_meanwhile(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    bench.submit(asked(array=(0, 1)))
    while bench.controller.live("1-0") is not None:
        bench.controller.turn()
    assert waiting(store, "1") == []
    again = Bench(store, "1x1:V100", world=bench.world, make=bench.world.engines("fifo"))
    again.settle()
    assert len(waiting(store, "1", "1-0", "1-1")) == 1


def test_an_end_that_cannot_be_written_notifies_nobody_and_one_that_is_written_later_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store)
    monkeypatch.setattr(failures, "BACK_OFF_S", (0.0,))
    bench.submit(asked())
    commit, refused = store.commit, list[Batch]()

    def full(batch: Batch) -> None:
        if batch.notifications and not refused:
            refused.append(batch)
            raise StoreError("the disk is full")
        commit(batch)

    monkeypatch.setattr(store, "commit", full)
    while not refused:
        bench.controller.turn()
    assert waiting(store, "1") == []
    assert store.job("1").ended_at is None
    bench.settle()
    assert len(waiting(store, "1")) == 1
    assert store.job("1").status == "succeeded"
