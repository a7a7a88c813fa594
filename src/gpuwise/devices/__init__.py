"""What hardware is: GPU types with their figures and sources, and how those with MIG can be cut into slices."""

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

__all__ = [
    "GpuType",
    "Instance",
    "Layout",
    "MigProfile",
    "best_start",
    "free_starts",
    "gpu_type",
    "gpu_types",
    "is_valid",
    "mig_profile",
    "mig_profiles",
    "partitions",
]
