"""How the executor waits: not longer than asked, not busily, and until something happens."""

from __future__ import annotations

import threading
import time

import pytest
from bench import Bench

from builders import on
from gpuwise.core.commands import Start
from gpuwise.core.events import JobStarted, WokeUp
from gpuwise.core.observations import AttemptObserved, Phase
from gpuwise.live.local.watch import Watch


def test_it_wakes_up_exactly_when_it_was_asked_to(bench: Bench) -> None:
    bench.executor.observe(bench.clock.now_s())
    until_s = bench.clock.now_s() + 0.1
    assert bench.executor.observe(until_s) == (until_s, [WokeUp(until_s)])
    assert until_s <= bench.clock.now_s() < until_s + 1


def test_a_time_that_has_passed_is_now(bench: Bench) -> None:
    before_s = bench.clock.now_s()
    bench.turn()
    now_s, events = bench.executor.observe(0.0)
    assert before_s <= now_s <= bench.clock.now_s()
    assert events == [WokeUp(now_s)]


def test_another_thread_can_end_a_wait(bench: Bench) -> None:
    bench.turn()
    caller = threading.Timer(0.1, bench.executor.wake)
    began = time.monotonic()
    caller.start()
    _, events = bench.executor.observe(None)
    caller.join()
    assert events == []
    assert time.monotonic() - began >= 0.1


def test_a_call_before_the_wait_is_not_lost(bench: Bench) -> None:
    bench.turn()
    for _ in range(3):
        bench.executor.wake()
    assert bench.executor.observe(bench.clock.now_s() + 30)[1] == []
    _, events = bench.executor.observe(bench.clock.now_s() + 0.05)  # three calls are one
    assert [type(event) for event in events] == [WokeUp]


def test_a_call_after_the_end_does_no_harm(bench: Bench) -> None:
    bench.executor.close()
    bench.executor.wake()
    bench.new_executor()


def test_time_does_not_go_back_and_events_come_in_time(bench: Bench) -> None:
    for number in range(5):
        bench.start(str(number), "/bin/true", device=number % 4)
        last_s = 0.0
        for _ in range(4):
            now_s, events = bench.executor.observe(bench.clock.now_s() + 0.03)
            assert now_s >= last_s
            assert all(event.at_s <= now_s for event in events)
            last_s = now_s
            bench.step(now_s, events)
        bench.until(lambda: not bench.executor.table.runs)


def test_events_that_come_close_together_come_in_one_batch(make_bench: object) -> None:
    bench: Bench = make_bench(coalesce_s=1.0)  # type: ignore[operator]
    bench.turn()
    rows = [bench.submit(str(number), "/bin/true") for number in range(3)]
    bench.order(*(Start(row, on((0, row))) for row in rows))
    _, events = bench.executor.observe(None)
    happened = {(each.job, each.phase) for each in events if isinstance(each, AttemptObserved)}
    assert happened == {(str(row), phase) for row in rows for phase in (Phase.RUNNING, Phase.SUCCEEDED)}


def test_waiting_costs_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.devices.CHECK_EVERY_S", 60.0)
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    sleeps = 0
    sleep = Watch.sleep

    def counted(watch: Watch, timeout_s: float) -> object:
        nonlocal sleeps
        sleeps += 1
        return sleep(watch, timeout_s)

    monkeypatch.setattr(Watch, "sleep", counted)
    bench.executor.observe(bench.clock.now_s() + 1.0)
    assert sleeps <= 3
