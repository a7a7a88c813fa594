"""NVIDIA GPUs of this machine through NVML: reading, MIG partitioning, MPS."""
