"""What a user declares: a job, a node, a cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.needs import ANY_SHARING, Forecast, JobNeeds, Role, Sharing, Source, only_held_as
from gpuwise.core.job.property import Property
from gpuwise.core.job.rules import check_together
from gpuwise.core.job.schema import LabelValues, check
from gpuwise.core.units import WHOLE_GPU_MILLI

__all__ = [
    "ANY_SHARING", "ClusterSpec", "Forecast", "JobNeeds", "JobSpec", "Labels", "NodeSpec", "Role", "Sharing", "Source",
    "field_names", "only_held_as", "slice_name",
]  # fmt: skip

Labels = LabelValues
"""Keys of labels, each with the values that will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(JobNeeds):
    """A training job as the engine knows it: what its user declares, with what is forecast of it."""

    # fmt: off
    id: Annotated[str, Property(help="Unique name of the job.")]
    submit_s: Annotated[float, Property(
        help="When it is submitted, in seconds since the start.", noun="a time", unit="s", low=0, high=1e18, column="f8"
    )] = 0.0
    duration_s: Annotated[float, Property(
        help="Forecast run time, alone, on the GPUs it asks for.", noun="a duration", unit="s", low=0, above=True,
        high=1e18, column="f8",
    )]
    duration_low_s: Annotated[float, Property(
        help="Lower end of the forecast of duration_s.", unit="s", low=0, high=1e18, or_nan=True, column="f8"
    )] = math.nan
    duration_high_s: Annotated[float, Property(
        help="Upper end of the forecast of duration_s.", unit="s", low=0, high=1e18, or_nan=True, column="f8"
    )] = math.nan
    duration_source: Annotated[Source, Property(
        help="Where duration_s comes from.", column="i1", coded=True
    )] = Source.DECLARED
    deadline_s: Annotated[float, Property(
        help="When it should have ended, on the clock of submit_s; inf is none.", noun="a deadline in s", unit="s",
        or_inf=True, column="f8",
    )] = math.inf
    tenant: Annotated[str, Property(
        help="Whose share it counts against: user, queue, account, virtual cluster.", column="i4", coded=True
    )] = ""
    # fmt: on

    def __post_init__(self) -> None:
        check(self, f"job {self.id!r}")
        check_together(self, f"job {self.id!r}")

    @property
    def total_steps(self) -> float:
        """Training steps in all; where they are not known, one for each second of the run time."""
        return self.duration_s if self.steps is None else self.steps

    @property
    def duration(self) -> Forecast:
        """What is forecast of its run time."""
        return Forecast(self.duration_s, self.duration_low_s, self.duration_high_s, self.duration_source)


COMPUTE_SLICES = 7
"""Compute slices of a GPU with MIG, of which a slice has one or more."""
FEWER_COMPUTE_SLICES = {"A30": 4, "RTXPRO6000": 4, "RTXPRO4500": 2}


def slice_name(gpu_type: str, milli: int) -> str:
    """What ``speeds`` call a MIG slice with so many thousandths of a GPU: ``A100/2g``."""
    whole = FEWER_COMPUTE_SLICES.get(gpu_type, COMPUTE_SLICES)
    return f"{gpu_type}/{max(1, round(milli * whole / WHOLE_GPU_MILLI))}g"


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
    uid: str = ""
    """Unique id of this machine: another machine under the same name has another; empty is unknown."""
    labels: tuple[tuple[str, str], ...] = ()
    """What is known of where and what it is, such as zone, rack and switch; by key."""
    device_ids: tuple[str, ...] = ()
    """UUIDs of its GPUs; empty makes them up from its name: ``n0/0``, ``n0/1``."""
    links: tuple[tuple[int, ...], ...] = ()
    """Groups of GPUs joined by NVLink; the others reach each other over PCIe."""
    schedulable: bool = True
    """Whether it takes new jobs; one that is drained does not, and keeps those it has."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(sorted((key, value) for key, value in self.labels)))
        if math.isnan(self.usd_per_hour):  # the same NaN everywhere, so that equal nodes compare as equal
            object.__setattr__(self, "usd_per_hour", math.nan)
        if not isinstance(self.gpus, int) or isinstance(self.gpus, bool) or not 0 <= self.gpus <= 64:
            raise GpuwiseError(f"node {self.name!r}: gpus is {self.gpus}; it must be a whole number from 0 to 64")
        self._check_devices()
        for name in ("cpus", "memory_bytes", "gpu_memory_bytes"):
            if not getattr(self, name) >= 0:
                raise GpuwiseError(f"node {self.name!r}: {name} is {getattr(self, name)}; it must be 0 or more")
        if self.usd_per_hour < 0:
            raise GpuwiseError(f"node {self.name!r}: usd_per_hour is {self.usd_per_hour}; it must be 0 or more")
        if not (self.speed > 0 and math.isfinite(self.speed)):
            raise GpuwiseError(f"node {self.name!r}: speed is {self.speed}; it must be above 0")
        if len(dict(self.labels)) < len(self.labels):
            raise GpuwiseError(f"node {self.name!r}: labels are {self.labels!r}; a key can have one value only")

    def _check_devices(self) -> None:
        ids, linked = self.device_ids, [device for group in self.links for device in group]
        if ids and (len(ids) != self.gpus or len(set(ids)) < len(ids)):
            raise GpuwiseError(
                f"node {self.name!r}: device_ids are {ids!r}; there must be one for each of its {self.gpus} GPUs"
            )
        if (
            not all(self.links)
            or len(set(linked)) < len(linked)
            or not all(0 <= device < self.gpus for device in linked)
        ):
            raise GpuwiseError(
                f"node {self.name!r}: links are {self.links!r}; each names devices from 0 to {self.gpus - 1}, once"
            )

    def device_id(self, device: int) -> str:
        """The id of a GPU by its index."""
        return self.device_ids[device] if self.device_ids else f"{self.name}/{device}"

    def device_at(self, device_id: str) -> int | None:
        """The index of the GPU with that id; None if there is none."""
        return next((index for index in range(self.gpus) if self.device_id(index) == device_id), None)

    def is_same_machine(self, other: NodeSpec) -> bool:
        """Whether this is the machine that went by the same name before, as far as their ids tell."""
        return not self.uid or not other.uid or self.uid == other.uid

    def kept_devices(self, later: NodeSpec) -> dict[int, int]:
        """Where each GPU that is still there after a change has gone: by id; where ids are not known, by index."""
        if not self.device_ids or not later.device_ids:
            if self.gpu_type != later.gpu_type:
                return {}
            return {device: device for device in range(min(self.gpus, later.gpus))}
        at = {name: index for index, name in enumerate(later.device_ids)}
        return {index: at[name] for index, name in enumerate(self.device_ids) if name in at}


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
