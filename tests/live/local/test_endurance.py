"""Many jobs: nothing leaks, nothing is forgotten, and starting one is quick."""

from __future__ import annotations

import os
import resource
import statistics
import threading
import time
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
    assert open_files() == files
    assert threading.active_count() == threads
    assert zombies() == before
    assert not list((bench.folder / "live").iterdir())
    assert not bench.executor.table.runs


def zombies() -> set[int]:
    """Children of ours that have ended and were not waited for."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {int(word) for word in file.read().split() if state_of(int(word)) == "Z"}


def test_starting_a_job_is_quick(bench: Bench) -> None:
    # Measured by processor time, which other work on the machine does not change much: a supervisor costs about 45 ms
    # of it here, and on an idle machine a job runs 50 ms after it was placed.
    took_s, before_s = [], processor_s()
    for number in range(10):
        row = bench.submit(str(number), "/bin/true")
        began = time.perf_counter()
        bench.order(Start(row, on((0, 0))))
        bench.expect(JobStarted, row)
        took_s.append(time.perf_counter() - began)
        bench.expect(JobFinished, row)
        bench.turn(0.05)
    assert (processor_s() - before_s) / 10 < 0.2
    assert statistics.median(took_s) < 2.0


def processor_s() -> float:
    """Of all processes that we started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
