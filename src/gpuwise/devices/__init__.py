"""What hardware is: GPU types with figures and sources, MIG profiles, VM types with prices; and this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuwise.devices.catalogue import GpuType, gpu_type, gpu_types
from gpuwise.devices.machine import Machine, MachineError, NoGpusError
from gpuwise.devices.mig import (
    Instance,
    Layout,
    MigProfile,
    best_start,
    check_slices,
    free_starts,
    has_mig,
    is_valid,
    layout_of,
    mig_profile,
    mig_profiles,
    partitions,
    slices_of,
)
from gpuwise.devices.vms import VmType, vm_type, vm_types

__all__ = [
    "GpuType",
    "Instance",
    "Layout",
    "MigProfile",
    "VmType",
    "best_start",
    "check_slices",
    "free_starts",
    "gpu_type",
    "gpu_types",
    "has_mig",
    "is_valid",
    "layout_of",
    "mig_profile",
    "mig_profiles",
    "partitions",
    "slices_of",
    "this_machine",
    "vm_type",
    "vm_types",
]


def this_machine(
    *,
    devices: int | None = None,
    memory_bytes: float | None = None,
    mps: Path | None = None,
    gpus: Sequence[str] | None = None,
) -> Machine:
    """The NVIDIA GPUs of this machine; where there are none, or ``devices`` is given, CPU cores that stand in for them.

    ``memory_bytes`` is the memory of each stand-in, by default an equal part of what jobs may use here. ``mps`` is a
    folder in which an MPS daemon for shared GPUs keeps its pipes and logs; the same folder finds the same daemon again.
    ``gpus`` are the indexes or UUIDs of the GPUs to manage, by default those of CUDA_VISIBLE_DEVICES, else all.
    """
    from gpuwise.devices.cpu import CpuMachine  # imports psutil

    if devices is not None and gpus is not None:
        raise MachineError("GPUs were chosen and CPU stand-ins asked for; give --gpus or --devices, not both")
    if devices is not None:
        return CpuMachine(devices, memory_bytes, notes=(f"{devices} CPU stand-ins in place of GPUs, as asked",))
    from gpuwise.devices.nvml.machine import NvmlMachine  # imports pynvml

    try:
        return NvmlMachine.open(mps, gpus)
    except NoGpusError as error:
        if gpus is not None:
            advice = "start without --gpus to manage CPU cores that stand in for GPUs"
            raise NoGpusError(f"--gpus {','.join(gpus)}: {error}; {advice}") from error
        return CpuMachine(None, memory_bytes, notes=(f"CPU cores stand in for GPUs: {error}",))
