"""What others than running jobs use of this machine's GPUs: strangers' processes, and the memory of parked jobs."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.events import DevicesClaimed
from gpuwise.core.units import MIB
from gpuwise.devices.machine import Reading, Where

GRAIN_BYTES = 256 * MIB
"""Claims are rounded up to this: what moves a little does not make an event every time it is looked at."""
LEAST_BYTES = 64 * MIB
"""A stranger with less on a GPU only draws a desktop; one that computes has a context larger than this."""


NOT_READ = Reading()


class Owner(enum.Enum):
    """Whose a process on a GPU is."""

    RUNNING = enum.auto()
    """A running job's: what it holds is in its placement."""
    PARKED = enum.auto()
    """A parked job's: it computes nothing, and keeps its memory."""
    STRANGER = enum.auto()
    """Nobody's that gpuwise knows, such as a notebook's."""


OwnerOf = Callable[[int], tuple[Owner, str]]
"""Whose a process is, by its id, and of which job; empty for a stranger."""
Use = tuple[float, bool]
"""Memory in use, and whether somebody computes there."""


class ForeignUse:
    """Notes what others use of each node, and tells when that has changed."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = nodes
        self._told: dict[str, DevicesClaimed] = {node.name: DevicesClaimed(0.0, node.name) for node in nodes}
        self._readings: dict[Where, Reading] = {}
        """What was last read of each device."""
        self.taken: set[Where] = set()
        """Devices on which strangers compute."""

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
            if self._told.get(node.name) != claim:
                self._told[node.name] = claim
                events.append(replace(claim, at_s=now_s))
        return events

    def forget(self) -> None:
        """Tells all of it again, also that there is nothing: somebody new listens."""
        self._told.clear()


def _is_read(reading: Reading) -> bool:
    return bool(reading.processes) or math.isfinite(reading.memory_used_bytes)


def device_use(reading: Reading, owner_of: OwnerOf) -> Use | None:
    """Memory that others use of a device, and whether somebody computes there; None if nobody else uses it."""
    memory_bytes, computes = 0.0, False
    for pid, used in reading.processes.items():
        owner, _ = owner_of(pid)
        if owner is Owner.RUNNING:
            continue
        known = used if math.isfinite(used) else 0.0
        is_stranger = owner is Owner.STRANGER and not 0 < known < LEAST_BYTES
        computes = computes or is_stranger
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
