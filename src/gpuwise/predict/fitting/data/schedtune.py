"""SchedTune's peak memory of CNNs on five GPUs in PyTorch (Albahar et al., CCGrid'22; MIT licence)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpuwise.devices.catalogue import gpu_types
from gpuwise.predict.fitting.data.memory_tables import Peak, memory_table
from gpuwise.predict.fitting.data.tables import read_rows

OPTIMIZER_STATES = 1
"""Momentum is assumed: the table does not say, and a CNN's usual recipe has it."""


def schedtune_memory(data: Path) -> dict[str, NDArray[Any]]:
    """A row for each model, batch size and GPU: the columns of `MemoryNeed`, and ``peak_bytes`` as nvidia-smi saw it.

    Models that neither torchvision nor timm has are left out.
    """
    cores, sms, peak = "Pipelines/CUDA cores", "SM count", "peak mem usage"
    rows = read_rows(data / "schedtune" / "model_stats.csv", ("batchsize", cores, sms, peak))
    peaks = (Peak(row["model"], row["batchsize"], _gpu(int(row[cores]), int(row[sms])), row[peak]) for row in rows)
    return memory_table("schedtune", peaks, framework="pytorch", measure="device", states=OPTIMIZER_STATES)


@cache
def _gpu(cores: int, sms: int) -> str:
    """The GPU type with so many SMs and cores; without one, a name made of them."""
    for gpu in gpu_types().values():
        if gpu.sms != sms or not gpu.fp32_tflops or not gpu.boost_clock_mhz:
            continue
        peak_cores = gpu.fp32_tflops * 1e6 / (2.0 * gpu.boost_clock_mhz)  # two operations a cycle
        if abs(peak_cores / cores - 1.0) < 0.05:
            return gpu.name
    return f"{sms} SMs of {cores // sms} cores"
