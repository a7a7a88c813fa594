"""What this process may use of its host: cores and memory, within the control groups of a container or batch system."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

JOBS_MEMORY_FRAC = 0.8
"""The fraction of memory for jobs; the rest is for the system, its file cache and gpuwise itself."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine as one of its processes may use it."""

    name: str
    cores: tuple[int, ...]
    cpus: float
    """CPU time in cores: fewer than ``cores`` under a CPU quota."""
    memory_bytes: float
    """Memory for jobs."""


def this_host() -> Host:
    """The machine this process runs on."""
    import psutil

    cores = tuple(sorted(os.sched_getaffinity(0)))
    memory = min(float(psutil.virtual_memory().total), memory_limit_bytes())
    return Host(socket.gethostname(), cores, min(float(len(cores)), cpu_limit()), memory * JOBS_MEMORY_FRAC)


def memory_limit_bytes(root: Path = Path("/")) -> float:
    """The smallest memory limit of the control groups this process is in; infinite where there is none."""
    limits = [
        _number(_text(group / name))
        for group in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min(limits, default=math.inf)


def cpu_limit(root: Path = Path("/")) -> float:
    """The smallest CPU quota of the control groups this process is in, in cores; infinite where there is none."""
    limits = []
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        limits.append(_number(quota) / _number(period, unknown=1.0))
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        limits.append(_number(quota) / _number(period, unknown=1.0))
    return min(limits, default=math.inf)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control group and all above it, in either version of control groups."""
    member = _membership(root, controller)
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        kind = source.split(" ")[0]
        if kind in ("cgroup", "cgroup2"):
            top, point = mount.split(" ")[3:5]
            below = Path(member.get(kind, "/"))
            inside = below.relative_to(top) if below.is_relative_to(top) else Path()
            folder = root / point.lstrip("/")
            yield folder
            for part in inside.parts:
                folder /= part
                yield folder


def _membership(root: Path, controller: str) -> dict[str, str]:
    """The control group of this process by the kind of its file system."""
    member = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            member["cgroup2"] = path
        elif controller in controllers.split(","):
            member["cgroup"] = path
    return member


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8").strip()
    return ""


def _number(text: str, unknown: float = math.inf) -> float:
    """A limit; "max", a negative number and an empty text mean none."""
    return float(text) if text.isdigit() else unknown
