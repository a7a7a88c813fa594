"""CPU cores that stand in for GPUs, so that gpuwise can be tried on a machine without one."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import psutil

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.devices.host import Host, this_host
from gpuwise.devices.machine import NONE, STAND_IN_TYPE, Device, MachineError, Reading, Where

MOST_STAND_INS = 64
"""The maximum number of devices of a node."""
SHORTEST_INTERVAL_S = 0.1
"""The kernel counts CPU time in steps of 10 ms; over less than this, utilization would be mostly rounding."""


class CpuMachine:
    """One node of stand-ins: device ``i`` is core ``i`` modulo the usable cores, with an equal part of the memory."""

    stand_in = True

    def __init__(
        self,
        devices: int | None = None,
        memory_bytes: float | None = None,
        *,
        notes: tuple[str, ...] = (),
        host: Host | None = None,
    ) -> None:
        host = this_host() if host is None else host
        count = min(len(host.cores), max(1, math.floor(host.cpus)), MOST_STAND_INS) if devices is None else devices
        if not 1 <= count <= MOST_STAND_INS:
            raise MachineError(f"{count} CPU stand-ins; there can be 1 to {MOST_STAND_INS}")
        memory = host.memory_bytes / count if memory_bytes is None else memory_bytes
        if not memory > 0:
            raise MachineError(f"CPU stand-ins with {memory} bytes of memory; it must be above 0")
        self.notes = notes
        self.nodes = (
            NodeSpec(
                name=host.name,
                gpu_type=STAND_IN_TYPE,
                gpus=count,
                cpus=host.cpus,
                memory_bytes=host.memory_bytes,
                gpu_memory_bytes=memory,
            ),
        )
        self.devices = (tuple(_stand_in(i, host.cores[i % len(host.cores)], memory) for i in range(count)),)
        self._use = CoreUtilization()

    def read(self, running: Mapping[Where, Collection[int]] | None = None) -> Mapping[Where, Reading]:
        """The utilization of each core, and the memory of the processes ``running`` on it, with their children."""
        use = self._use.read()
        memory = memory_by_device(running or {})
        return {
            (0, number): Reading(
                util_frac=use.get(device.cores[0], math.nan),
                memory_used_bytes=sum(memory[0, number].values()),
                memory_total_bytes=device.memory_bytes,
                processes=memory[0, number],
            )
            for number, device in enumerate(self.devices[0])
        }

    def lost(self) -> frozenset[Where]:
        """Stand-ins whose core this process may no longer use."""
        usable = os.sched_getaffinity(0)
        return frozenset((0, i) for i, device in enumerate(self.devices[0]) if device.cores[0] not in usable)

    def environment(self, placement: Placement, *, memory_bytes: float = 0.0) -> dict[str, str]:
        """No GPU, and one thread per core."""
        threads = str(len(self.cores(placement)))
        return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": NONE, "OMP_NUM_THREADS": threads}

    def cores(self, placement: Placement) -> tuple[int, ...]:
        """The cores of its stand-ins."""
        return tuple(sorted({self._device(where).cores[0] for where in placement.devices()}))

    def repartition(self, node: int, device: int, slices: Sequence[MigSlice]) -> None:
        """Stand-ins are always whole."""
        if slices:
            raise MachineError(f"{self._device((node, device)).name} cannot be partitioned; only GPUs with MIG can")

    def layout(self) -> Mapping[Where, tuple[MigSlice, ...]]:
        """Stand-ins are always whole."""
        return {}

    def close(self) -> None:
        """Nothing to release."""

    def _device(self, where: Where) -> Device:
        node, number = where
        if node != 0 or not 0 <= number < len(self.devices[0]):
            raise MachineError(f"this machine has no device {number} on node {node}")
        return self.devices[0][number]


class CoreUtilization:
    """The utilization of each core since it was last read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_s, self._times = time.monotonic(), _busy_and_total_s()
        self._use: dict[int, float] = {}

    def read(self) -> dict[int, float]:
        """The busy fraction of the time of each core; empty until the first interval has passed."""
        with self._lock:
            if time.monotonic() - self._at_s >= SHORTEST_INTERVAL_S:
                before, self._times = self._times, _busy_and_total_s()
                self._at_s = time.monotonic()
                self._use = {core: _part(before.get(core, (0.0, 0.0)), now) for core, now in self._times.items()}
            return self._use


def memory_by_device(running: Mapping[Where, Collection[int]]) -> defaultdict[Where, dict[int, float]]:
    """Resident memory of each process and its children, in equal parts on the devices it runs on."""
    found: defaultdict[Where, dict[int, float]] = defaultdict(dict)
    spread: defaultdict[int, list[Where]] = defaultdict(list)
    for where, pids in running.items():
        for pid in pids:
            spread[pid].append(where)
    children = _children() if spread else {}
    for pid, places in spread.items():
        resident = _resident_bytes(pid, children)
        for where in places:
            found[where][pid] = resident / len(places)
    return found


def _stand_in(number: int, core: int, memory_bytes: float) -> Device:
    return Device(
        uuid=f"{STAND_IN_TYPE}-{number}",
        name=f"CPU core {core}, stand-in {number}",
        gpu_type=STAND_IN_TYPE,
        memory_bytes=memory_bytes,
        cores=(core,),
    )


def _busy_and_total_s() -> dict[int, tuple[float, float]]:
    """Since the machine was booted, by core; user time includes that of guests."""
    found = {}
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        found[core] = (total - times.idle - getattr(times, "iowait", 0.0), total)
    return found


def _part(before: tuple[float, float], now: tuple[float, float]) -> float:
    passed_s = now[1] - before[1]
    return min(1.0, max(0.0, (now[0] - before[0]) / passed_s)) if passed_s > 0 else math.nan


def _children() -> Mapping[int, list[int]]:
    children = defaultdict(list)
    for process in psutil.process_iter(["ppid"]):
        children[process.info["ppid"]].append(process.pid)
    return children


def _resident_bytes(pid: int, children: Mapping[int, list[int]]) -> float:
    """0 for a process that has ended."""
    own = 0.0
    with suppress(psutil.Error):
        own = float(psutil.Process(pid).memory_info().rss)
    return own + sum(_resident_bytes(child, children) for child in children.get(pid, ()))
