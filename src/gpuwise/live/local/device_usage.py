"""What is used of this machine's GPUs: by running jobs, by parked ones, and by foreign processes."""

from __future__ import annotations

import enum
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.events import DevicesClaimed
from gpuwise.core.units import MIB
from gpuwise.devices.machine import Reading, Where
from gpuwise.live.local.attempts.runs import Run, RunTable
from gpuwise.live.local.plan import Actual
from gpuwise.live.local.supervisor.processes import stat_of, tokens_of

GRAIN_BYTES = 256 * MIB
"""Claims are rounded up to this: what moves a little does not make an event every time it is looked at."""
LEAST_BYTES = 64 * MIB
"""A foreign process with less on a GPU only draws a desktop; one that computes has a context larger than this."""
MOST_ANCESTORS = 64
NOT_READ = Reading()


class Owner(enum.Enum):
    """Whose a process on a GPU is."""

    RUNNING = enum.auto()
    """A running job's: what it uses is in its placement."""
    PARKED = enum.auto()
    """A parked job's: it computes nothing, and keeps its memory."""
    FOREIGN = enum.auto()
    """No job's, such as a notebook's."""


OwnerOf = Callable[[int], tuple[Owner, str]]
"""Whose a process is, by its id, and of which job; empty for a foreign process."""
Use = tuple[float, bool]
"""Memory in use, and whether foreign processes compute there."""


class Claims:
    """What others than running jobs use of each node, reported when it has changed."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = nodes
        self._reported: dict[str, DevicesClaimed] = {node.name: DevicesClaimed(0.0, node.name) for node in nodes}
        self._readings: dict[Where, Reading] = {}
        """What was last read of each device."""
        self.taken: set[Where] = set()
        """Devices on which foreign processes compute."""

    def changes(self, now_s: float, readings: Mapping[Where, Reading], owner_of: OwnerOf) -> list[DevicesClaimed]:
        """An event for each node of which others use something else than was last reported.

        A device that could not be read is taken to be as it was last.
        """
        events = []
        self.taken.clear()
        self._readings |= {where: reading for where, reading in readings.items() if _is_read(reading)}
        for number, node in enumerate(self._nodes):
            found: list[tuple[str, float, bool]] = []
            parked: list[tuple[str, str, float]] = []
            for device in range(node.gpus):
                reading = self._readings.get((number, device), NOT_READ)
                if (use := device_use(reading, owner_of)) is not None:
                    found.append((node.device_id(device), *use))
                    parked += [(job, node.device_id(device), kept) for job, kept in parked_use(reading, owner_of)]
                if use is not None and use[1]:
                    self.taken.add((number, device))
            claim = DevicesClaimed(0.0, node.name, tuple(found), parked=tuple(parked))
            if self._reported.get(node.name) != claim:
                self._reported[node.name] = claim
                events.append(replace(claim, at_s=now_s))
        return events

    def begin_again(self) -> None:
        """Reports everything again, also that there is nothing."""
        self._reported.clear()


class DeviceUsage:
    """Measures what is used of GPUs."""

    def __init__(self, table: RunTable) -> None:
        self._table = table
        self._claims = Claims(table.machine.nodes)
        self._unknown: set[int] | None = None
        """Processes on GPUs that were no job's when last looked at."""

    def begin_again(self) -> None:
        """Reports everything again."""
        self._claims.begin_again()
        self._unknown = None

    def measure(self, now_s: float) -> list[DevicesClaimed]:
        """Notes how much memory each run's processes have on GPUs; what others use of them, where that has changed."""
        readings, used = self._table.machine.read(), Counter[Path]()
        owners = Owners(self._table.runs.values())
        for reading in readings.values():
            for pid, memory_bytes in reading.processes.items():
                if math.isfinite(memory_bytes) and (run := owners.run_of(pid)) is not None:
                    used[run.attempt.folder] += int(memory_bytes)
        changes = self._changes(now_s, readings, owners)
        for folder, memory_bytes in used.items():
            run = self._table.runs[folder]
            run.gpu_memory_bytes = max(run.gpu_memory_bytes, memory_bytes)
        return changes

    def _changes(self, now_s: float, readings: Mapping[Where, Reading], owners: Owners) -> list[DevicesClaimed]:
        """What others use, once it was observed twice: a job's process may be just beginning, or ending."""
        unknown: set[int] = set()
        before, self._unknown = self._unknown, unknown
        if before is None:  # a foreign process looks like a job's that is just beginning
            unknown |= {pid for each in readings.values() for pid in each.processes if owners.run_of(pid) is None}
            return []

        def owner_of(pid: int) -> tuple[Owner, str]:
            run = owners.run_of(pid)
            if run is not None:
                # One that merely waits for its turn still has its place.
                is_parked = run.reported_over and run.actual() is Actual.PARKED
                return (Owner.PARKED if is_parked else Owner.RUNNING), run.uid
            unknown.add(pid)
            return (Owner.FOREIGN if pid in before else Owner.RUNNING), ""

        changes = self._claims.changes(now_s, readings, owner_of)
        self._table.foreign_devices.clear()
        self._table.foreign_devices.update(self._claims.taken)
        return changes


def _is_read(reading: Reading) -> bool:
    return bool(reading.processes) or math.isfinite(reading.memory_used_bytes)


def device_use(reading: Reading, owner_of: OwnerOf) -> Use | None:
    """Memory others use of a device, and whether foreign processes compute there; None if that is next to nothing."""
    memory_bytes, computes = 0.0, False
    for pid, used in reading.processes.items():
        owner, _ = owner_of(pid)
        if owner is Owner.RUNNING:
            continue
        known = used if math.isfinite(used) else 0.0
        is_foreign = owner is Owner.FOREIGN and not 0 < known < LEAST_BYTES
        computes = computes or is_foreign
        memory_bytes += known
    if not computes and memory_bytes < LEAST_BYTES:
        return None
    return _rounded(memory_bytes), computes


def parked_use(reading: Reading, owner_of: OwnerOf) -> list[tuple[str, float]]:
    """The memory that each parked job keeps on a device."""
    kept: Counter[str] = Counter()
    for pid, used in reading.processes.items():
        owner, job = owner_of(pid)
        if owner is Owner.PARKED and math.isfinite(used):
            kept[job] += int(used)
    return [(job, _rounded(used)) for job, used in sorted(kept.items()) if used]


def _rounded(memory_bytes: float) -> float:
    return math.ceil(memory_bytes / GRAIN_BYTES) * float(GRAIN_BYTES)


class Owners:
    """The runs there are at one moment, by their processes."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._by_pid: dict[int, Run] = {}
        self._by_token: dict[str, Run] = {}
        for run in runs:
            if run.token:
                self._by_token[run.token] = run
            self._by_pid |= dict.fromkeys(run.pids(), run)
            if run.supervisor is not None:
                self._by_pid[run.supervisor.pid] = run
        self._found: dict[int, Run | None] = {}

    def run_of(self, pid: int) -> Run | None:
        """The run that a process belongs to; None for a foreign one, and for one that has ended."""
        if pid not in self._found:
            self._found[pid] = self._by_pid.get(_session(pid)) or self._of_ancestor(pid) or self._of_token(pid)
        return self._found[pid]

    def _of_ancestor(self, pid: int) -> Run | None:
        """A job may make sessions of its own; whatever it starts stays below its supervisor."""
        for _ in range(MOST_ANCESTORS):
            if pid <= 1 or pid in self._by_pid:
                break
            pid = _parent(pid)
        return self._by_pid.get(pid)

    def _of_token(self, pid: int) -> Run | None:
        """A container's process is below its engine's daemon, but has the token of its attempt."""
        return next((self._by_token[token] for token in tokens_of(pid) if token in self._by_token), None)


def _session(pid: int) -> int:
    """The session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except (OSError, OverflowError):
        return 0


def _parent(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    try:
        return int(stat_of(pid)[1])
    except (OSError, ValueError, IndexError):
        return 0
