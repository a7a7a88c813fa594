"""Everything at once: jobs are started, suspended, moved, cancelled, killed and orphaned in no order at all.

Whatever happens, the engine is never told something that cannot be, a job never runs twice at a time, two jobs are
never on one device at a time, and in the end everything has ended and nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from bench import PYTHON, Bench, carriers, clear

from builders import on
from gpuwise.core.commands import Migrate, Rearrange, Resume, Start, Suspend
from gpuwise.core.job.life_cycle import ENDED, PLACED, Status
from gpuwise.engine.checks import InvalidDecisionError

DEVICES, JOBS, STEPS = 3, 12, 60
BEAT_S = 0.01

BEATS = """
import json, os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
attempt, checkpoint = os.environ["GPUWISE_ATTEMPT_DIR"], os.environ["GPUWISE_CHECKPOINT_DIR"]
me = f"{os.environ['GPUWISE_JOB_ID']} {os.getpid()}"
def put(path, found):
    with open(path + ".tmp", "w") as file: json.dump(found, file)
    os.replace(path + ".tmp", path)
if "saves" in sys.argv: put(f"{attempt}/sdk.json", {"can_suspend": True, "steps": 50})
for step in range(int(sys.argv[2])):
    # Where it runs is what it is allowed to run on: it may have been moved to another core under its feet.
    os.write(log, f"{time.monotonic()} {me} {min(os.sched_getaffinity(0))}\\n".encode())
    if "saves" in sys.argv and os.path.exists(f"{attempt}/control.json"):
        control = json.load(open(f"{attempt}/control.json"))
        if control["want"] == "leave":
            put(f"{checkpoint}/latest.json", {"step": step, "steps": 50})
            put(f"{attempt}/saved.json", {"seq": control["seq"], "step": step, "steps": 50})
            sys.exit(75)
    time.sleep(0.01)
sys.exit(int(sys.argv[3]))
"""


class Chaos:
    """Does one thing after the other that a cluster may see."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.rng = random.Random(seed)
        self.log = bench.folder / "beats"
        self.done: Counter[str] = Counter()
        for number in range(JOBS):
            saves = ("saves",) if number % 2 else ()
            steps, code = str(self.rng.choice((5, 50, 200))), str(self.rng.choice((0, 0, 0, 3)))
            row = bench.submit(str(number), *PYTHON, "-c", BEATS, str(self.log), steps, code, *saves, grace_s=0.2)
            bench.retries.add(row)

    def step(self) -> None:
        often = (self.place,) * 5 + (self.suspend, self.move, self.restore) * 2
        seldom = (self.swap, self.cancel, self.kill, self.kill_supervisor, self.crash, self.lose)
        what = self.rng.choice(often + seldom)
        with contextlib.suppress(InvalidDecisionError, ProcessLookupError, FileNotFoundError, IndexError):
            what()
            self.done[what.__name__] += 1

    def rows(self, *statuses: Status) -> list[int]:
        state = self.bench.engine.state
        return [row for row in range(len(state.jobs)) if state.status(row) in statuses]

    def anywhere(self) -> int:
        return self.rng.randrange(DEVICES)

    def place(self) -> None:
        row = self.rng.choice(self.rows(Status.PENDING, Status.SUSPENDED))
        command = Start if self.bench.engine.state.status(row) is Status.PENDING else Resume
        self.bench.order(command(row, on((0, self.anywhere()))))

    def suspend(self) -> None:
        self.bench.order(Suspend(self.rng.choice(self.rows(*PLACED))))

    def move(self) -> None:
        self.bench.order(Migrate(self.rng.choice(self.rows(*PLACED)), on((0, self.anywhere()))))

    def swap(self) -> None:
        first, second = self.rng.choice(self.rows(*PLACED)), self.rng.choice(self.rows(*PLACED))
        placed = self.bench.engine.state.placed
        if first == second:
            return
        self.bench.order(Rearrange(((first, placed[second]), (second, placed[first]))))

    def cancel(self) -> None:
        if self.rng.random() < 0.2:
            self.bench.cancel(self.rng.choice(self.rows(*PLACED, Status.SUSPENDING, Status.SUSPENDED)))

    def kill(self) -> None:
        run = self.rng.choice(list(self.bench.executor.table.runs.values()))
        os.kill(run.pids()[0], self.rng.choice((signal.SIGKILL, signal.SIGTERM)))

    def kill_supervisor(self) -> None:
        run = self.rng.choice(list(self.bench.executor.table.runs.values()))
        assert run.supervisor is not None
        os.kill(run.supervisor.pid, signal.SIGKILL)

    def crash(self) -> None:
        self.bench.new_executor()

    def lose(self) -> None:
        self.bench.machine.gone = {(0, self.anywhere())}

    def restore(self) -> None:
        self.bench.machine.gone = set()


def beats(log: Path) -> list[tuple[float, str, str, str]]:
    words = [line.split() for line in log.read_text().splitlines()]
    return sorted((float(at), job, pid, core) for at, job, pid, core in words)


def alternations(sequence: list[tuple[float, str]]) -> int:
    """How often two take turns within a time in which one alone would have made them all."""
    close = [
        (one[1], two[1], three[1])
        for (one, two), (_, three) in pairwise(pairwise(sequence))
        if three[0] - one[0] < 3 * BEAT_S
    ]
    return sum(first == third != second for first, second, third in close)


@pytest.mark.parametrize("seed", [1, 2])
def test_chaos(make_bench: Callable[..., Bench], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.devices.CHECK_EVERY_S", 0.1)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("jobs are told apart by their cores")
    bench = make_bench(devices=min(DEVICES, len(cores)))
    monkeypatch.setattr("test_chaos.DEVICES", min(DEVICES, len(cores)))
    chaos = Chaos(bench, seed)
    for _ in range(STEPS):
        chaos.step()
        bench.turn(chaos.rng.choice((0.0, 0.02, 0.1, 0.2)))
    chaos.restore()
    bench.retries.clear()
    for row in chaos.rows(*set(Status) - ENDED - {Status.DECLARED}):
        bench.cancel(row)
    bench.until(lambda: not bench.executor.table.runs)
    found = beats(chaos.log)
    assert set(range(JOBS)) == set(chaos.rows(*ENDED))
    for job in {beat[1] for beat in found}:  # a job is one process at a time
        assert alternations([(at, pid) for at, each, pid, _ in found if each == job]) == 0
    for core in {beat[3] for beat in found}:  # a device is one job's at a time
        assert alternations([(at, job) for at, job, _, each in found if each == core]) == 0
    assert not carriers(f"{bench.folder}/sdk.sock")
    assert len(found) > 5
    assert min(chaos.done[name] for name in ("place", "suspend", "crash")) > 0
    clear(bench)


def test_two_that_take_turns_are_seen() -> None:
    alone = [(number * BEAT_S, "a") for number in range(20)]
    after = [(1.0 + number * BEAT_S, "b") for number in range(20)]
    beside = [(number * BEAT_S + BEAT_S / 2, "b") for number in range(20)]
    assert alternations(alone + after) == 0
    assert alternations(sorted(alone + beside)) > 20
