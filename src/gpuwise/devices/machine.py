"""What a machine is: its GPUs, or CPU cores that stand in for them, their readings, and how they are changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.errors import GpuwiseError

Where: TypeAlias = tuple[int, int]
"""A device: the number of its node, and its number on the node."""

NONE = "void"
"""What NVIDIA_VISIBLE_DEVICES is where a container is to have no GPU."""
STAND_IN_TYPE = "cpu-core"
"""The GPU type of a CPU core that stands in for a GPU."""


class MachineError(GpuwiseError):
    """A request that the devices of this machine cannot fulfil, or that this user may not make."""


class DeviceInUseError(MachineError):
    """A change to a device that processes still use."""


class NoGpusError(MachineError):
    """No usable NVIDIA GPU; the message is one line with the cause."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A slice of a partitioned GPU, with the UUID by which CUDA knows it."""

    uuid: str
    slice: MigSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, or a CPU core that stands in for one."""

    uuid: str
    name: str
    """As the driver reports it."""
    gpu_type: str
    """Its name in the catalogue; for a type that is not there, the name in the driver without the maker."""
    memory_bytes: float
    cores: tuple[int, ...] = ()
    """The core of a stand-in; for a GPU the usable cores nearest to it, none where that is unknown."""
    mig_enabled: bool = False
    mig: tuple[MigInstance, ...] = ()
    """Its slices, by where they start; a whole GPU in MIG mode has one of its full size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a device does at this moment; NaN where it does not report it."""

    util_frac: float = math.nan
    memory_used_bytes: float = math.nan
    memory_total_bytes: float = math.nan
    power_w: float = math.nan
    temperature_c: float = math.nan
    sm_clock_mhz: float = math.nan
    processes: Mapping[int, float] = field(default_factory=dict)
    """Memory on the device by process id, foreign processes included."""


class Machine(Protocol):
    """Where jobs run: devices in nodes of one GPU type each, their readings, and the environment of a job on them.

    Its methods may be called from several threads. Reading never fails: what cannot be read is NaN or lost.
    """

    @property
    def stand_in(self) -> bool:
        """Whether CPU cores stand in for GPUs here."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the machine was found, one line per note."""
        ...

    @property
    def nodes(self) -> tuple[NodeSpec, ...]:
        """The machine as a cluster: one node for each GPU type in it."""
        ...

    @property
    def devices(self) -> Sequence[Sequence[Device]]:
        """``devices[node][device]``, in the order of the driver."""
        ...

    def read(self, running: Mapping[Where, Collection[int]] | None = None) -> Mapping[Where, Reading]:
        """What every device does; ``running`` are the processes on stand-ins, a driver knows those on GPUs."""
        ...

    def lost(self) -> frozenset[Where]:
        """Devices on which nothing can run: no answer, or in MIG mode without a slice. Takes microseconds."""
        ...

    def environment(self, placement: Placement, *, memory_bytes: float = 0.0) -> dict[str, str]:
        """The variables that show a job its devices and no others; ``memory_bytes`` on each, 0: its share."""
        ...

    def cores(self, placement: Placement) -> tuple[int, ...] | None:
        """The cores to which the processes of a job are bound; None: any core."""
        ...

    def repartition(self, node: int, device: int, slices: Sequence[MigSlice]) -> None:
        """Partitions a GPU in MIG mode into these slices, or makes it whole; slices that stay are not touched."""
        ...

    def layout(self) -> Mapping[Where, tuple[MigSlice, ...]]:
        """The slices of the partitioned GPUs, read again; whole GPUs are left out."""
        ...

    def close(self) -> None:
        """Releases the devices; jobs keep running."""
        ...
