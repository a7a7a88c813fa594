"""Many jobs: nothing leaks, and nothing is forgotten."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from bench import AttemptEnded, Bench, open_files, state_of

from builders import on
from gpuwise.core.commands import Start
from gpuwise.core.events import JobFinished, JobStarted

JOBS, DEVICES = 200, 8


def test_hundreds_of_jobs_leave_nothing_behind(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(devices=DEVICES)
    bench.expect(JobFinished, bench.start("first", "/bin/true"))
    bench.until(lambda: not bench.supervisors)
    files, threads, before = open_files(), threading.active_count(), zombies()
    waiting = [bench.submit(str(number), "/bin/true") for number in range(JOBS)]
    free = list(range(DEVICES))
    on_device: dict[int, int] = {}
    while waiting or on_device:
        while free and waiting:
            row, device = waiting.pop(0), free.pop(0)
            on_device[row] = device
            bench.order(Start(row, on((0, device))))
        free += [on_device.pop(event.job) for event in bench.turn(20.0) if isinstance(event, JobFinished)]
    bench.until(lambda: not bench.supervisors)
    happened = [type(event) for event in bench.events]
    assert happened.count(JobStarted) == happened.count(JobFinished) == JOBS
    assert len([report for report in bench.reports if isinstance(report, AttemptEnded)]) == JOBS + 1
    bench.until(lambda: open_files() <= files and threading.active_count() <= threads)
    assert zombies() == before
    assert not list((bench.folder / "live").iterdir())
    assert not bench.executor.table.runs


def zombies() -> set[int]:
    """Children of ours that have ended and were not waited for."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {int(word) for word in file.read().split() if state_of(int(word)) == "Z"}
