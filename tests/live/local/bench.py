"""A bench for the local executor: an engine that does what a test says, and real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from builders import on
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import NOTHING, Command, Decision, Start
from gpuwise.core.events import Event, JobCancelled, JobSubmitted, WokeUp
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import OVER, AttemptObserved, Phase
from gpuwise.devices.cpu import CpuMachine
from gpuwise.devices.machine import Where
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.job_records import outcome_of
from gpuwise.live.local.attempts.folders import Folders, attempt_token
from gpuwise.live.local.attempts.launch import LaunchSpec
from gpuwise.live.local.executor import LocalExecutor
from gpuwise.live.local.plan import Actual
from gpuwise.live.recovery import compacted, to_json
from gpuwise.policies.placing.placement import first_fit

SECRET = f"of the bench {os.getpid()}".encode()  # of no other run of these tests on this machine
SOON_S = 20.0
"""Much longer than anything should take; a test that waits so long fails."""
Kind = TypeVar("Kind")
PYTHON = (sys.executable, "-I", "-S")
POLITE = (
    *PYTHON,
    "-c",
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye') or 0))\n"
    "print('up', flush=True)\n"
    "while True: time.sleep(0.01)",
)
"""Says up, and bye when it is asked to end."""
TRAINER = (*PYTHON, str(Path(__file__).with_name("trainer.py")))


class Idle:
    """A policy that decides nothing: the test decides."""

    name = "idle"
    wakes_on: frozenset[type[Event]] = frozenset()

    def decide(self, view: Any, rng: Any) -> Decision:
        return NOTHING


class Stand(CpuMachine):
    """CPU stand-ins that can be taken away."""

    def __init__(self, devices: int, memory_bytes: float = 2**30) -> None:
        super().__init__(devices, memory_bytes)
        self.gone: set[Where] = set()

    def lost(self) -> frozenset[Where]:
        return frozenset(self.gone)


@dataclass(frozen=True)
class AttemptStarted:
    """A job's process was seen to run."""

    uid: str
    number: int
    at_s: float


@dataclass(frozen=True)
class AttemptEnded:
    """A job's process was seen to be gone."""

    uid: str
    number: int
    at_s: float
    started_s: float
    outcome: str
    exit_code: int | None
    detail: str
    peak_memory_bytes: float | None
    cpu_s: float | None


@dataclass(frozen=True)
class Progress:
    """A job said how far it is."""

    uid: str
    at_s: float
    step: float
    steps: float | None
    loss: float | None
    samples_per_s: float | None


def reports_of(seen: AttemptObserved) -> list[object]:
    """What an observation says for the records."""
    details = seen.details
    if seen.phase is Phase.RUNNING and details.started_s is not None:
        return [AttemptStarted(seen.job, seen.attempt, seen.at_s)]
    if seen.phase is Phase.RUNNING:
        return [Progress(seen.job, seen.at_s, seen.step, seen.steps, details.loss, details.samples_per_s)]
    if seen.phase in OVER and details.started_s is not None:
        last = Progress(seen.job, seen.at_s, seen.step, seen.steps, details.loss, details.samples_per_s)
        return [
            *([last] if seen.phase is Phase.SUCCEEDED and seen.step else []),
            AttemptEnded(
                seen.job, seen.attempt, seen.at_s, details.started_s, outcome_of(seen), details.exit_code, details.text,
                details.peak_memory_bytes, details.cpu_s,
            ),
        ]  # fmt: skip
    return []


class Again(set[int]):
    """Jobs that are tried again when they fail, however often."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench

    def add(self, row: int) -> None:
        self.bench.engine.state.jobs.retries[row] = 1000


class Bench:
    """One machine, one engine, one executor."""

    def __init__(self, folder: Path, devices: int = 4, machine: Stand | None = None, **options: Any) -> None:
        self.folder = folder
        self.machine = machine or Stand(devices)
        self.clock = Clock(time.time() - 1.0)
        self.cluster = ClusterSpec(self.machine.nodes)
        self.engine = self.new_engine(self.cluster)
        self.specs: dict[str, LaunchSpec] = {}
        self.events: list[Event] = []
        self.reports: list[object] = []
        self.retries = Again(self)
        self.options = options
        self.abandoned: list[LocalExecutor] = []
        self.new_executor()

    def new_executor(self) -> None:
        """A fresh executor, bound to the engine as it is; the one before is left as a crash would leave it."""
        if hasattr(self, "executor"):
            self.abandoned.append(self.executor)
        self.executor = LocalExecutor(
            self.folder, self.machine, self.clock, self.specs.__getitem__, SECRET, **self.options
        )
        self.executor.follow(self.engine.desired(), complete=True)

    @staticmethod
    def new_engine(cluster: ClusterSpec) -> Engine:
        return Engine(cluster, Idle(), placer=first_fit)

    def forget_ended(self) -> None:
        """Goes on with an engine that has forgotten the jobs that have ended, as a controller does now and then."""
        self.engine = compacted(self.engine, to_json(self.engine), self.new_engine)

    # -- what a test does -----------------------------------------------------------------------------------------

    def submit(self, uid: str, *command: str, forecast_bytes: float = 0.0, **asked: Any) -> int:
        """Puts a job into the engine; its row."""
        request = JobRequest(command=command, **asked)
        self.specs[uid] = LaunchSpec(request, forecast_bytes)
        now_s = self.clock.now_s()
        row = self.engine.state.jobs.declare(
            [request.spec(uid, submit_s=now_s, duration_s=request.duration_s or 100.0)]
        )[0]
        self.step(now_s, [JobSubmitted(now_s, row)])
        return row

    def start(self, uid: str, *command: str, device: int = 0, **asked: Any) -> int:
        """Submits a job and starts it on one device."""
        row = self.submit(uid, *command, **asked)
        self.order(Start(row, on((0, device))))
        return row

    def order(self, *commands: Command) -> None:
        """Has commands carried out as if a policy had decided them."""
        now_s = self.clock.now_s()
        self.executor.follow(self.engine.addressed(self.engine.order(now_s, commands)))

    def cancel(self, row: int) -> None:
        now_s = self.clock.now_s()
        self.step(now_s, [JobCancelled(now_s, row)])

    def step(self, now_s: float, events: Sequence[Event | AttemptObserved]) -> None:
        self.executor.follow(self.engine.addressed(self.engine.step(now_s, events)))

    def turn(self, for_s: float = 0.0) -> list[Event]:
        """One turn of the controller; the events that come of what is seen."""
        now_s, happened = self.executor.observe(self.clock.now_s() + for_s)
        for each in happened:
            if isinstance(each, AttemptObserved):
                self.reports += reports_of(each)
        records = self.engine.journal.records
        before = len(records)
        self.step(now_s, happened)
        events = [each for each in records[before:] if isinstance(each, Event) and not isinstance(each, WokeUp)]
        self.events += events
        return events

    @property
    def placed(self) -> dict[int, Any]:
        """What runs where, by what is seen on this machine."""
        runs = [run for run in self.executor.table.runs.values() if run.attempt.is_started]
        rows = self.engine.state.jobs.row_of
        return {rows[run.uid]: run.placement for run in runs if run.uid in rows and run.actual() is not Actual.PARKED}

    @property
    def supervisors(self) -> dict[int, Any]:
        """The supervisors that the executor watches, by their process ids."""
        return self.executor._watch._supervisors

    def until(self, holds: Callable[[], Any], within_s: float = SOON_S) -> None:
        """Turns until something is so."""
        end_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > end_s:
                raise AssertionError(f"not within {within_s} s; so far {self.events}")
            self.turn(0.2)

    def expect(self, kind: type[Kind], row: int, within_s: float = SOON_S) -> Kind:
        """The next event of a kind about a job; it is taken off the list with all about the job before it."""

        def found() -> list[Any]:
            return [each for each in self.events if isinstance(each, kind) and getattr(each, "job", row) == row]

        self.until(found, within_s)
        first = found()[0]
        at = self.events.index(first)
        self.events = [each for each in self.events[:at] if getattr(each, "job", row) != row] + self.events[at + 1 :]
        return first

    def reported(self, kind: type[Kind], uid: str) -> list[Kind]:
        return [each for each in self.reports if isinstance(each, kind) and each.uid == uid]  # type: ignore[attr-defined]

    # -- what a test looks at -------------------------------------------------------------------------------------

    def output(self, uid: str) -> str:
        log = self.folder / "jobs" / uid / "output.log"
        return log.read_text() if log.exists() else ""

    def attempt(self, uid: str, number: int = 1) -> Path:
        return self.folder / "jobs" / uid / "attempts" / str(number)

    def json(self, uid: str, name: str, number: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.attempt(uid, number) / name).read_text())
        return found

    def pids(self, uid: str, number: int = 1) -> list[int]:
        return list(self.json(uid, "started.json", number)["pids"])

    def supervisor(self, uid: str, number: int = 1) -> int:
        return int(self.json(uid, "claim", number)["pid"])


def wait_for(holds: Callable[[], object], within_s: float = SOON_S) -> None:
    """Without a turn of the controller: it is down."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def clear(bench: Bench) -> None:
    """Ends whatever a test left running, and makes sure that nothing of it is left."""
    for attempt in Folders(bench.folder).live():
        uid, number = attempt.uid, attempt.number
        for pid in (*claimants(attempt.folder), *carriers(attempt_token(SECRET, uid, number))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    bench.until(lambda: not bench.executor.table.runs and not bench.supervisors)
    bench.turn()
    for executor in (*bench.abandoned, bench.executor):
        executor.close()
    assert not carriers(f"{bench.folder}/sdk.sock")


def claimants(attempt: Path) -> list[int]:
    """The living supervisor of an attempt, found by its command line."""
    return [pid for pid in processes() if str(attempt).encode() in _read(pid, "cmdline").split(b"\0")]


def carriers(text: str) -> list[int]:
    """The processes with a text in their environment."""
    return [pid for pid in processes() if text.encode() in _read(pid, "environ")]


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def state_of(pid: int) -> str:
    """R, S, T, ... of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
