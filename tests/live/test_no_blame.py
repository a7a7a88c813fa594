"""Who is answered when, and who is to blame when a turn fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from world import Bench, World, request

from gpuwise.core.assignments import Desired
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.events import DevicesClaimed, Event, JobFinished, JobStarted, NodeAdded
from gpuwise.core.records import Batch, Store
from gpuwise.engine.engine import COMMON
from gpuwise.engine.journal import HANDLERS
from gpuwise.live import failures


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits after a turn that failed."""
    monkeypatch.setattr(failures, "BACK_OFF_S", (0.0,))


class Insists(World):
    """A world that tells of a node whenever somebody new listens."""

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        super().follow(desired, complete)
        if complete:
            price = float("nan")  # a new one each time, which is not equal to the last
            self.queued.append(NodeAdded(self.now_s, NodeSpec(name="bad", gpu_type="V100", gpus=1, usd_per_hour=price)))


def raising(monkeypatch: pytest.MonkeyPatch, kind: type[Event]) -> list[Event]:
    """Makes the handler of an event fail; the events that it was asked to take in."""
    asked: list[Event] = []

    def fail(state: Any, event: Event) -> None:
        asked.append(event)
        raise ZeroDivisionError("a fault in a handler")

    for handlers in (HANDLERS, COMMON):
        if kind in handlers:
            monkeypatch.setitem(handlers, kind, fail)
    return asked


def srtf_bench(store: Store, world: World) -> Bench:
    """As a service has it: with another engine that takes over when the policy is to blame."""
    return Bench(store, world=world, policy="srtf", fallback=world.engines("fifo"))


def test_a_policy_is_not_blamed_for_an_event_that_cannot_be_taken_in(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = raising(monkeypatch, NodeAdded)
    bench = srtf_bench(store, Insists())
    with caplog.at_level(logging.ERROR):
        for _ in range(2 * failures.PATIENCE):
            bench.controller.turn()
    assert len(asked) == failures.PATIENCE  # it is reported again after every rebuild
    assert "cannot be taken in; it is left out from now on" in caplog.text
    assert bench.controller.trouble == "cannot take in NodeAdded bad; see the controller log"
    assert bench.controller.engine.policy.name == "srtf"
    (uid,) = bench.submit(request(5.0))
    bench.settle()
    assert store.job(uid).status == "succeeded"


def test_an_observation_that_cannot_be_taken_in_is_left_out_and_its_job_still_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = srtf_bench(store, World())
    asked = raising(monkeypatch, JobStarted)
    future = bench.controller.submit([request(5.0)], "ada")
    troubles = set()
    for _ in range(20):
        bench.controller.turn()
        troubles.add(bench.controller.trouble)
    assert len(asked) == failures.PATIENCE
    (record,) = future.result(0)
    assert f"cannot take in that attempt 1 of job {record.uid} is running; see the controller log" in troubles
    assert store.job(record.uid).status == "succeeded"
    assert bench.controller.engine.policy.name == "srtf"
    assert bench.controller.trouble == ""


def test_a_fault_that_happens_once_does_not_lose_the_end_of_a_job(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(5.0))
    bench.controller.turn()
    asked = raising(monkeypatch, JobFinished)
    while not asked:
        bench.controller.turn()
    monkeypatch.undo()
    bench.settle(20)
    assert len(asked) == 1
    assert store.job(uid).status == "succeeded"
    assert bench.controller.trouble == ""


def test_requests_are_answered_after_the_write_and_before_anything_is_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    class Spy(World):
        def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
            if not complete:
                order.append("follow")
                assert future.done(), "it is acted on before it is answered"
            super().follow(desired, complete)

    bench = Bench(store, world=Spy())
    commit = store.commit

    def spy(batch: Batch) -> None:
        assert not future.done(), "it is answered before it is written"
        commit(batch)
        order.append("commit")

    monkeypatch.setattr(store, "commit", spy)
    future: Future[Any] = bench.controller.submit([request()], "ada")
    future.add_done_callback(lambda _: order.append("answer"))
    bench.controller.turn()
    assert order == ["commit", "answer", "follow"]


class Claims(World):
    """A world that reports what others use of a node whenever somebody new listens, and never twice the same."""

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        super().follow(desired, complete)
        if complete:
            self.claims = getattr(self, "claims", 0) + 1
            self.queued.append(DevicesClaimed(self.now_s, "n0", cpus=self.claims / 8))


def test_what_cannot_be_taken_in_is_left_out_even_if_it_is_never_twice_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = raising(monkeypatch, DevicesClaimed)
    bench = Bench(store, world=Claims())
    for _ in range(2 * failures.PATIENCE):
        bench.controller.turn()
    assert len(asked) == failures.PATIENCE
    assert bench.controller.trouble == "cannot take in DevicesClaimed n0; see the controller log"
    (uid,) = bench.submit(request(5.0))
    bench.settle()
    assert store.job(uid).status == "succeeded"
