"""How much memory and which cores an attempt may use: by a control group, or by limits of each process."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.core.commands import Placement
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.shape import task_counts
from gpuwise.core.units import MIB, WHOLE_GPU_MILLI
from gpuwise.devices.machine import Machine
from gpuwise.live.local.supervisor.processes import write, write_if_possible

log = logging.getLogger(__name__)

STACKS_BYTES = 256 * MIB
"""Where a limit is set on the address space of each process, threads' stacks count though they are hardly used."""
PREFIX = "gpuwise-"
CONTROLLER = f"{PREFIX}controller"
"""Where the controller itself goes: a group that has processes of its own cannot limit others below it."""
MOST_PROCESSES = 32768
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What the processes of an attempt may use."""

    memory_bytes: float = math.inf
    cgroup: Path | None = None
    rlimits: dict[str, int] = field(default_factory=dict)


def memory_limit_bytes(request: JobRequest, forecast_bytes: float, placement: Placement, machine: Machine) -> float:
    """The memory of this machine that a job may use.

    On stand-ins, what would be in a GPU's memory is in the machine's: what the job is forecast to need on each device
    if its user said so, else its share of each, and what it asks for beside. On GPUs only the latter; nothing asked for
    is no limit.
    """
    beside_bytes = _task_bytes(request, placement) if placement.tasks else request.memory_bytes
    if not machine.stand_in:
        return beside_bytes or math.inf
    share = placement.milli / WHOLE_GPU_MILLI
    on_devices = 0.0
    for node, device in placement.devices():
        memory_bytes = machine.devices[node][device].memory_bytes
        usual = request.gpu_memory_bytes or share * memory_bytes
        on_devices += min(max(usual, forecast_bytes), memory_bytes)
    return on_devices + beside_bytes or math.inf


def _task_bytes(request: JobRequest, placement: Placement) -> float:
    """Memory of all tasks of a job with roles; 0, which is no limit, unless every role says how much it needs."""
    counts = task_counts(placement.tasks)
    each = [role.memory_bytes * counts.get(role.name, 0) for role in request.roles]
    return sum(each) if all(each) else 0.0


def limits_of(cgroups: Cgroups | None, name: str, memory_bytes: float, cores: tuple[int, ...] | None) -> ProcessLimits:
    """Limits by a control group, or by the address space of each process where there can be none."""
    if cgroups is not None:
        try:
            return ProcessLimits(memory_bytes, cgroups.make(name, memory_bytes=memory_bytes, cores=cores))
        except OSError as error:
            log.warning("no control group for %s: %s", name, error)
    if math.isfinite(memory_bytes):
        return ProcessLimits(memory_bytes, None, {"RLIMIT_DATA": int(memory_bytes) + STACKS_BYTES})
    return ProcessLimits()


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Control groups: a group of ours under which each attempt gets one with its limits."""

    base: Path
    unified: bool
    """Whether this is version 2, where one group has all controllers."""

    @classmethod
    def find(cls, state: Path, proc: Path = Path("/proc/self")) -> Cgroups | None:
        """The group of the service that keeps its state in a folder; None where we may not have one."""
        mine = PREFIX + hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:12]
        for find_own, unified in ((_own_v2, True), (_own_v1, False)):
            own = find_own(proc)
            if own is None:
                continue
            try:
                if unified:
                    own = _delegate(own)
                (own / mine).mkdir(exist_ok=True)
                if unified:
                    _enable(own / mine, ("memory", "pids", "cpuset"))
                found = cls(own / mine, unified)
                found.remove(found.make("probe", memory_bytes=1 << 30))
            except OSError:
                continue
            return found
        return None

    def make(self, name: str, *, memory_bytes: float = math.inf, cores: Iterable[int] | None = None) -> Path:
        """A group with limits."""
        group = self.group(name)
        group.mkdir(parents=True, exist_ok=True)
        memory = str(int(memory_bytes) // PAGE_BYTES * PAGE_BYTES) if math.isfinite(memory_bytes) else None
        if not self.unified:
            if memory is not None:
                write(group / "memory.limit_in_bytes", memory)
                write_if_possible(group / "memory.memsw.limit_in_bytes", memory)
            return group
        if memory is not None:
            write(group / "memory.max", memory)
            write_if_possible(group / "memory.swap.max", "0")
        write_if_possible(group / "memory.oom.group", "1")
        write_if_possible(group / "pids.max", str(MOST_PROCESSES))
        self.confine(name, cores)
        return group

    def group(self, name: str) -> Path:
        """The group of a name, whether it is there or not."""
        return self.base / name

    def confine(self, name: str, cores: Iterable[int] | None) -> None:
        """Lets the processes of a group use these cores only, where groups can do that."""
        if self.unified and cores:
            write_if_possible(self.group(name) / "cpuset.cpus", ",".join(map(str, cores)))

    def remove(self, group: Path) -> None:
        """Removes an empty group."""
        with contextlib.suppress(OSError):
            group.rmdir()

    def close(self) -> None:
        """Removes our own group, if no attempt is in it."""
        self.remove(self.base)


def processes_of(group: Path) -> list[int]:
    """The processes in a group."""
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []


def oom_kills(group: Path) -> int:
    """How many of a group's processes were killed because its memory ran out."""
    return max(_counter(group / name, "oom_kill") for name in ("memory.events", "memory.oom_control"))


def peak_bytes(group: Path) -> float:
    """The most memory a group has used at one time, without the files it has cached; 0 is unknown."""
    for name, cached in (("memory.peak", "inactive_file"), ("memory.max_usage_in_bytes", "total_inactive_file")):
        with contextlib.suppress(OSError, ValueError):
            files = sum(
                _counter(group / "memory.stat", each) for each in (cached, cached.replace("inactive", "active"))
            )
            return max(0, int((group / name).read_text()) - files)
    return 0.0


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    return 0


def _own_v2(proc: Path) -> Path | None:
    """This process's group where version 2 has the memory controller."""
    mount, inside = _mount(proc, "cgroup2", None), _membership(proc, "")
    if mount is None or inside is None:
        return None
    own = Path(f"{mount}{inside}")
    own = own.parent if own.name == CONTROLLER else own
    try:
        controllers = (own / "cgroup.controllers").read_text().split()
    except OSError:
        return None
    return own if "memory" in controllers else None


def _own_v1(proc: Path) -> Path | None:
    """This process's group in version 1's hierarchy of the memory controller."""
    mount, inside = _mount(proc, "cgroup", "memory"), _membership(proc, "memory")
    if mount is None or inside is None:
        return None
    own = Path(f"{mount}{inside}")
    return own if own.is_dir() else Path(mount)  # in a container, the mount is our own group already


def _mount(proc: Path, kind: str, option: str | None) -> str | None:
    """Where a file system of a kind is mounted."""
    with contextlib.suppress(OSError):
        for line in (proc / "mounts").read_text().splitlines():
            _, where, found, options, *_ = line.split()
            if found == kind and (option is None or option in options.split(",")):
                return where
    return None


def _membership(proc: Path, controller: str) -> str | None:
    with contextlib.suppress(OSError):
        for line in (proc / "cgroup").read_text().splitlines():
            _, controllers, inside = line.split(":", 2)
            if controller in controllers.split(","):
                return inside.rstrip("/")
    return None


def _delegate(own: Path) -> Path:
    """Makes room for groups with limits below ours: this process moves to a leaf, where it may be asked to be."""
    if "memory" in (own / "cgroup.subtree_control").read_text().split():
        return own
    leaf = own / CONTROLLER
    leaf.mkdir(exist_ok=True)
    me = str(os.getpid())
    write(leaf / "cgroup.procs", me)
    try:
        _enable(own, ("memory", "pids", "cpuset"))
    except OSError:  # others are in our group, so it is not ours alone
        write(own / "cgroup.procs", me)
        leaf.rmdir()
        raise
    return own


def _enable(group: Path, controllers: Iterable[str]) -> None:
    """Hands controllers down to the groups below; the first is needed, the others are welcome."""
    first, *others = controllers
    write(group / "cgroup.subtree_control", f"+{first}")
    for each in others:
        write_if_possible(group / "cgroup.subtree_control", f"+{each}")
