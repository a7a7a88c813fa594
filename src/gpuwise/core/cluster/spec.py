"""What a user declares of a cluster and its nodes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpuwise.core.errors import GpuwiseError


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
    """Whether it takes new jobs; a drained node does not, and keeps those it has."""

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
        """Whether this is the machine that went by the same name before, as far as their ids show."""
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
