"""SchedTune's peak memory of CNNs on five GPUs in PyTorch (Albahar et al., CCGrid'22; MIT licence)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpuwise.devices import gpu_types
from gpuwise.predict.data.architectures import architecture, memory_row
from gpuwise.predict.data.tables import columns, read_rows

MIB = 2.0**20
OPTIMIZER_STATES = 1
"""Momentum is assumed: the table does not say, and a CNN's usual recipe has it."""


def schedtune_memory(data: Path) -> dict[str, NDArray[Any]]:
    """A row for each model, batch size and GPU: the columns of `MemoryNeed`, and ``peak_bytes`` as nvidia-smi saw it.

    Models that neither torchvision nor timm has are left out.
    """
    made = []
    for row in read_rows(data / "schedtune" / "model_stats.csv"):
        batch = float(row["batchsize"])
        made_of = architecture(row["model"])
        features = memory_row(made_of, batch, OPTIMIZER_STATES)
        if features is None:
            continue
        gpu = _gpu(int(row["Pipelines/CUDA cores"]), int(row["SM count"]))
        names = {"data": "schedtune", "label": f"schedtune_{row['model']}", "architecture": made_of.network}
        place = {"batch_size": batch, "gpu": gpu}
        kept = {"framework": "pytorch", "measure": "device", "peak_bytes": float(row["peak mem usage"]) * MIB}
        made.append(names | place | kept | features)
    return columns(made)


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
