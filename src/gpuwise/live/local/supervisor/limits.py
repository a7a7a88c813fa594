"""How much memory an attempt may use, how that is enforced, and how running out of it is recognised."""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.core.commands import Placement
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.shape import task_counts
from gpuwise.core.units import MIB, WHOLE_GPU_MILLI
from gpuwise.devices.machine import Machine
from gpuwise.live.local.attempts.files import read_end
from gpuwise.live.local.attempts.folders import Exit
from gpuwise.live.local.supervisor.cgroups import Cgroups, oom_kills, peak_bytes

log = logging.getLogger(__name__)

TAIL_BYTES = 8192
STACKS_BYTES = 256 * MIB
"""Where a limit holds for the address space of each process, threads' stacks count though they are hardly used."""
SIGKILL = 9
NO_MEMORY = re.compile(
    rb"^[\w.]*MemoryError\b|CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    rb"|DefaultCPUAllocator: can't allocate memory|std::bad_alloc|RESOURCE_EXHAUSTED: Out of memory"
    rb"|Cannot allocate memory",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for the processes of an attempt."""

    memory_bytes: float = math.inf
    cgroup: Path | None = None
    rlimits: dict[str, int] = field(default_factory=dict)


def memory_limit_bytes(request: JobRequest, believed_bytes: float, placement: Placement, machine: Machine) -> float:
    """The memory of this machine that a job may use.

    On stand-ins, what a GPU's memory would hold is in the machine's: what the job is believed to need on each device
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
        on_devices += min(max(usual, believed_bytes), memory_bytes)
    return on_devices + beside_bytes or math.inf


def _task_bytes(request: JobRequest, placement: Placement) -> float:
    """Memory of all tasks of a job with roles; 0, which is no limit, unless every role says how much it needs."""
    counts = task_counts(placement.tasks)
    each = [role.memory_bytes * counts.get(role.name, 0) for role in request.roles]
    return sum(each) if all(each) else 0.0


def confine(cgroups: Cgroups | None, name: str, memory_bytes: float, cores: tuple[int, ...] | None) -> Limits:
    """Limits by a control group, or by the address space of each process where there can be none."""
    if cgroups is not None:
        try:
            return Limits(memory_bytes, cgroups.make(name, memory_bytes=memory_bytes, cores=cores))
        except OSError as error:
            log.warning("no control group for %s: %s", name, error)
    if math.isfinite(memory_bytes):
        return Limits(memory_bytes, None, {"RLIMIT_DATA": int(memory_bytes) + STACKS_BYTES})
    return Limits()


def ran_out_of_memory(ended: Exit, group: Path | None, output: Path, offset: int) -> bool:
    """Whether a failed attempt failed for want of memory; ``offset`` is where its own output begins."""
    if group is not None and oom_kills(group) > 0:
        return True
    if ended.signal == SIGKILL and not ended.asked and ended.machine_oom_kills > 0:
        return True
    return NO_MEMORY.search(tail(output, offset)) is not None


def peak_memory_bytes(ended: Exit, group: Path | None) -> float | None:
    """The most memory an attempt has used, if it is known."""
    by_group = peak_bytes(group) if group is not None else 0.0
    return max(by_group, ended.max_rss_bytes) or None


def tail(output: Path, offset: int) -> bytes:
    """The end of what an attempt has printed."""
    try:
        return read_end(output, offset, TAIL_BYTES)
    except OSError:
        return b""
