"""The machine gpuwise runs on: its GPUs, or CPU cores that stand in for them, read and changed in one way."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.errors import GpuwiseError

Where: TypeAlias = tuple[int, int]
"""A device: the number of its node, and its number on the node."""

STAND_IN_TYPE = "cpu-core"
"""The GPU type of a CPU core that stands in for a GPU."""


class MachineError(GpuwiseError):
    """Something that this machine's devices cannot do, or that this user may not ask of them."""


class DeviceInUseError(MachineError):
    """A change to a device that processes still use."""


class NoGpusError(MachineError):
    """No NVIDIA GPU that could be used; its text is one line that says why."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A slice of a partitioned GPU as it is now: the name CUDA knows it by, and what it is."""

    uuid: str
    slice: MigSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, or a CPU core that stands in for one."""

    uuid: str
    name: str
    """As the driver says it."""
    gpu_type: str
    """Its name in the catalogue; the driver's, without the maker, where the catalogue does not know it."""
    memory_bytes: float
    cores: tuple[int, ...] = ()
    """The core of a stand-in; for a GPU the usable cores nearest to it, none where that is unknown."""
    mig_enabled: bool = False
    mig: tuple[MigInstance, ...] = ()
    """The slices it is cut into, by where they start; a whole GPU in MIG mode has one of its full size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a device does at this moment; NaN is what it cannot tell."""

    util_frac: float = math.nan
    memory_used_bytes: float = math.nan
    memory_total_bytes: float = math.nan
    power_w: float = math.nan
    temperature_c: float = math.nan
    sm_clock_mhz: float = math.nan
    processes: Mapping[int, float] = field(default_factory=dict)
    """Memory on the device by process id; those of others count too."""


class Machine(Protocol):
    """Where jobs run: devices in nodes of one GPU type each, what they do, and how a job is shown its own.

    Its methods may be called from several threads. Reading never fails: what cannot be read is NaN or lost.
    """

    @property
    def stand_in(self) -> bool:
        """Whether CPU cores stand in for GPUs here."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the machine was found, a line each."""
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
        """What every device does; stand-ins are told which processes run on them, a GPU's driver knows."""
        ...

    def lost(self) -> frozenset[Where]:
        """Devices nothing can run on now: they do not answer, or are in MIG mode with no slice. Takes microseconds."""
        ...

    def environment(self, placement: Placement, *, memory_bytes: float = 0.0) -> dict[str, str]:
        """The variables that show a job its devices and no others; ``memory_bytes`` on each, 0 is its share."""
        ...

    def cores(self, placement: Placement) -> tuple[int, ...] | None:
        """The cores a job's processes are bound to; None leaves them free."""
        ...

    def repartition(self, node: int, device: int, slices: Sequence[MigSlice]) -> None:
        """Cuts a GPU in MIG mode into these slices, or makes it whole; slices that stay are not touched."""
        ...

    def layout(self) -> Mapping[Where, tuple[MigSlice, ...]]:
        """How the GPUs that are cut are cut now, read anew; a whole one is not in it."""
        ...

    def close(self) -> None:
        """Lets go of the devices; jobs run on."""
        ...


def this_machine(*, devices: int | None = None, memory_bytes: float | None = None, mps: Path | None = None) -> Machine:
    """The NVIDIA GPUs of this machine; where there are none, or ``devices`` are asked for, CPU cores in their place.

    ``memory_bytes`` is what each stand-in has, by default its part of what jobs may use here. ``mps`` is a folder in
    which an MPS daemon for shared GPUs keeps its pipes and logs; the same folder finds the same daemon again.
    """
    from gpuwise.devices.cpu import CpuMachine

    if devices is not None:
        return CpuMachine(devices, memory_bytes, notes=(f"{devices} CPU stand-ins in place of GPUs, as asked",))
    from gpuwise.devices.nvml.machine import NvmlMachine

    try:
        return NvmlMachine.open(mps)
    except NoGpusError as why:
        return CpuMachine(None, memory_bytes, notes=(f"CPU cores stand in for GPUs: {why}",))
