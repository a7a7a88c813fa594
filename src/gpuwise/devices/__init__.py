"""What hardware is: GPU types with figures and sources, how those with MIG can be cut, and VM types with prices."""

from gpuwise.devices.catalogue import GpuType, gpu_type, gpu_types
from gpuwise.devices.mig import (
    Instance,
    Layout,
    MigProfile,
    best_start,
    free_starts,
    is_valid,
    mig_profile,
    mig_profiles,
    partitions,
)
from gpuwise.devices.vms import VmType, vm_type, vm_types

__all__ = [
    "GpuType",
    "Instance",
    "Layout",
    "MigProfile",
    "VmType",
    "best_start",
    "free_starts",
    "gpu_type",
    "gpu_types",
    "is_valid",
    "mig_profile",
    "mig_profiles",
    "partitions",
    "vm_type",
    "vm_types",
]
