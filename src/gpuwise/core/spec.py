"""What a user declares: a job, a node, a cluster."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import WHOLE_GPU_MILLI


class Sharing(enum.IntEnum):
    """How a job holds a GPU."""

    EXCLUSIVE = 0
    """Alone on whole GPUs."""
    TIME_SLICE = 1
    """Turn by turn with its neighbours; each has its share of the time."""
    SHARED = 2
    """At the same time as its neighbours, through MPS or plain process sharing."""
    MIG = 3
    """On a hardware slice of a partitioned GPU."""


ANY_SHARING: frozenset[Sharing] = frozenset(Sharing)


def only_held_as(sharing: frozenset[Sharing]) -> str:
    """For messages: how a job that may not have a GPU alone may hold one, such as ``, held as mig only``."""
    ways = " or ".join(each.name.lower().replace("_", "-") for each in sorted(sharing))
    return "" if Sharing.EXCLUSIVE in sharing else f", held as {ways} only"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job as its user declares it, with what is forecast of it."""

    id: str
    submit_s: float = 0.0
    duration_s: float
    """Forecast run time, alone, on the GPUs it asks for."""
    gpus: int = 1
    """Gang size: all of them at once or none."""
    min_gpus: int | None = None
    max_gpus: int | None = None
    """An elastic job may run on any number from ``min_gpus`` to ``max_gpus``; both default to ``gpus``."""
    gpu_frac: float = 1.0
    """Fraction of each GPU it needs."""
    gpu_memory_bytes: float = 0.0
    """Memory per GPU; 0 is unknown."""
    gpu_types: tuple[str, ...] = ()
    """GPU types it may run on; empty is any."""
    sharing: frozenset[Sharing] = ANY_SHARING
    cpus: float = 0.0
    memory_bytes: float = 0.0
    """CPUs and memory of the whole job, spread evenly over its GPUs."""
    priority: int = 0
    deadline_s: float = math.inf
    tenant: str = ""
    steps: float | None = None
    """Training steps in all; unknown counts one step a second."""
    model: str = ""
    batch_size: int = 0
    gpu_util_frac: float = math.nan
    """Forecast GPU utilization when alone; NaN is unknown."""
    speeds: tuple[tuple[str, float], ...] = ()
    """Forecast speed on GPU types, and on slices of them (``A100/2g``: two compute slices), relative to the GPU that
    ``duration_s`` is for; a type that is not named runs it at the node's ``speed``, a slice by Amdahl's law."""
    suspend_s: float = 0.0
    resume_s: float = 0.0
    migrate_s: float = 0.0
    resize_s: float = 0.0
    """What saving, loading, moving and resizing cost this job."""

    def __post_init__(self) -> None:
        low, high = self.gpu_range
        _require(self, "duration_s", self.duration_s > 0 and math.isfinite(self.duration_s), "above 0 s")
        _require(self, "submit_s", self.submit_s >= 0 and math.isfinite(self.submit_s), "a time of 0 s or later")
        _require(self, "gpus", 0 <= low <= self.gpus <= high, "between min_gpus and max_gpus")
        _require(self, "min_gpus", low > 0 or high == 0, "1 or more, unless the job asks for no GPU at all")
        _require(self, "gpu_frac", 0 < self.gpu_frac <= 1, "above 0 and at most 1")
        _require(self, "gpu_frac", self.gpu_frac == 1 or (low, high) == (1, 1), "1 unless the job asks for one GPU")
        _require(self, "steps", self.total_steps > 0 and math.isfinite(self.total_steps), "above 0")
        _require(self, "deadline_s", not math.isnan(self.deadline_s), "a time, or inf for none")
        _require(self, "sharing", bool(self.sharing), "at least one mode")
        usable = len(dict(self.speeds)) == len(self.speeds) and all(0 <= speed < math.inf for _, speed in self.speeds)
        _require(self, "speeds", usable, "each GPU type once, with a speed of 0 or more")
        for name in ("gpu_memory_bytes", "cpus", "memory_bytes", "suspend_s", "resume_s", "migrate_s", "resize_s"):
            value = getattr(self, name)
            _require(self, name, value >= 0 and math.isfinite(value), "0 or more")

    @property
    def gpu_range(self) -> tuple[int, int]:
        """Fewest and most GPUs it may run on."""
        return (
            self.gpus if self.min_gpus is None else self.min_gpus,
            self.gpus if self.max_gpus is None else self.max_gpus,
        )

    @property
    def total_steps(self) -> float:
        """Training steps in all."""
        return self.duration_s if self.steps is None else self.steps


COMPUTE_SLICES = 7
"""Compute slices of a GPU with MIG, of which a slice has one or more."""
FEWER_COMPUTE_SLICES = {"A30": 4, "RTXPRO6000": 4, "RTXPRO4500": 2}


def slice_name(gpu_type: str, milli: int) -> str:
    """What ``speeds`` call a MIG slice with so many thousandths of a GPU: ``A100/2g``."""
    whole = FEWER_COMPUTE_SLICES.get(gpu_type, COMPUTE_SLICES)
    return f"{gpu_type}/{max(1, round(milli * whole / WHOLE_GPU_MILLI))}g"


def _require(job: JobSpec, name: str, holds: bool, expected: str) -> None:
    if not holds:
        raise GpuwiseError(f"job {job.id!r}: {name} is {getattr(job, name)!r}; it must be {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A machine: its GPUs, all of one type, its CPUs and its memory."""

    name: str
    gpu_type: str
    gpus: int
    cpus: float = math.inf
    memory_bytes: float = math.inf
    """CPUs and memory of the node; infinite is not modelled."""
    gpu_memory_bytes: float = math.inf
    speed: float = 1.0
    """How fast this GPU type runs a job, relative to the one its duration was measured on."""
    usd_per_hour: float = math.nan
    """Price of the whole node; NaN is unknown."""

    def __post_init__(self) -> None:
        if not isinstance(self.gpus, int) or isinstance(self.gpus, bool) or not 0 <= self.gpus <= 64:
            raise GpuwiseError(f"node {self.name!r}: gpus is {self.gpus}; it must be a whole number from 0 to 64")
        for name in ("cpus", "memory_bytes", "gpu_memory_bytes"):
            if not getattr(self, name) >= 0:
                raise GpuwiseError(f"node {self.name!r}: {name} is {getattr(self, name)}; it must be 0 or more")
        if self.usd_per_hour < 0:
            raise GpuwiseError(f"node {self.name!r}: usd_per_hour is {self.usd_per_hour}; it must be 0 or more")
        if not (self.speed > 0 and math.isfinite(self.speed)):
            raise GpuwiseError(f"node {self.name!r}: speed is {self.speed}; it must be above 0")


_GROUP = re.compile(r"(\d+)x(\d+):([A-Za-z0-9][\w.\- ]*)")
MAX_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The nodes of a cluster."""

    nodes: tuple[NodeSpec, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise GpuwiseError(f"two nodes of the cluster have the same name, {node.name!r}")
            seen.add(node.name)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(node.gpus for node in self.nodes)

    @classmethod
    def parse(cls, text: str) -> ClusterSpec:
        """A cluster from shorthand: ``NODESxGPUS:TYPE`` joined by ``+``, e.g. ``6x4:T4+2x8:A100``."""
        nodes: list[NodeSpec] = []
        for group in text.split("+"):
            match = _GROUP.fullmatch(group.strip())
            if match is None:
                raise GpuwiseError(
                    f"{group.strip()!r} in cluster {text!r} is not NODESxGPUS:TYPE; "
                    "write for example 8x8:V100, or 6x4:T4+2x8:A100 for several types"
                )
            count, gpus = int(match[1]), int(match[2])
            if not 1 <= count <= MAX_NODES - len(nodes) or gpus < 1:
                raise GpuwiseError(
                    f"{group.strip()!r} in cluster {text!r} must have 1 to {MAX_NODES} nodes of 1 or more GPUs"
                )
            first = len(nodes)
            nodes += [NodeSpec(name=f"n{first + i}", gpu_type=match[3].strip(), gpus=gpus) for i in range(count)]
        return cls(tuple(nodes))

    def describe(self) -> str:
        """The cluster in shorthand, neighbours of the same kind joined."""
        groups: list[tuple[int, str, int]] = []
        for node in self.nodes:
            if groups and groups[-1][:2] == (node.gpus, node.gpu_type):
                groups[-1] = (node.gpus, node.gpu_type, groups[-1][2] + 1)
            else:
                groups.append((node.gpus, node.gpu_type, 1))
        return "+".join(f"{count}x{gpus}:{gpu_type}" for gpus, gpu_type, count in groups)


def field_names(spec: type[JobSpec] | type[NodeSpec]) -> Iterable[str]:
    """The names a user may set on a job or a node."""
    return (field.name for field in fields(spec))
