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
from gpuwise.devices.mig_slices import check_cut, has_mig, layout_of, slices_of
from gpuwise.devices.vms import VmType, vm_type, vm_types

__all__ = [
    "GpuType",
    "Instance",
    "Layout",
    "MigProfile",
    "VmType",
    "best_start",
    "check_cut",
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
    "vm_type",
    "vm_types",
]
