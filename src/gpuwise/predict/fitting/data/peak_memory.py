"""Measured peak memory of training jobs, as the columns of `MemoryNeed`: SchedTune, Salus and MISO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from gpuwise.core.units import MIB
from gpuwise.devices.catalogue import gpu_types
from gpuwise.predict.fitting.data.architectures import MISO, SALUS, Architecture, architecture, memory_row
from gpuwise.predict.fitting.data.miso import GPU, UTILIZATION
from gpuwise.predict.fitting.data.tables import columns, log_unknown_models, read_rows

SCHEDTUNE_STATES = 1
"""Values that the optimizer keeps per parameter: momentum is assumed, as is usual for CNNs; the table does not say."""
SALUS_STATES = 0
"""Plain gradient descent, the default of the benchmarks."""
SALUS_GPU = "P100"
"""Of the paper's testbed; the file does not say."""
MISO_STATES = 2
"""Adam, in nearly all of the training scripts."""


class Peak(NamedTuple):
    """One measurement."""

    model: str
    batch: float
    gpu: str
    mib: float


def schedtune_memory(data: Path) -> dict[str, NDArray[Any]]:
    """SchedTune's peaks of CNNs on five GPUs in PyTorch, as nvidia-smi saw them (Albahar, CCGrid'22; MIT licence).

    Models that neither torchvision nor timm has are left out.
    """
    cores, sms, peak = "Pipelines/CUDA cores", "SM count", "peak mem usage"
    rows = read_rows(data / "schedtune" / "model_stats.csv", ("batchsize", cores, sms, peak))
    peaks = (Peak(row["model"], row["batchsize"], _gpu(int(row[cores]), int(row[sms])), row[peak]) for row in rows)
    return memory_table("schedtune", peaks, framework="pytorch", measure="device", states=SCHEDTUNE_STATES)


def salus_memory(data: Path) -> dict[str, NDArray[Any]]:
    """Salus' peaks of TensorFlow's CNN benchmarks, as its allocator counted them (Yu, MLSys'20; Apache-2.0 licence).

    Models without a known architecture are left out.
    """
    rows = read_rows(data / "salus" / "workloads.csv", ("batch_size", "peak_mem_mb"))
    peaks = (Peak(row["model"], row["batch_size"], SALUS_GPU, row["peak_mem_mb"]) for row in rows)
    return memory_table("salus", peaks, framework="tensorflow", measure="allocator", states=SALUS_STATES, known=SALUS)


def miso_memory(data: Path) -> dict[str, NDArray[Any]]:
    """MISO's peaks on an A100, as nvidia-smi saw them (Li et al., SoCC'22; MIT licence).

    All are TensorFlow with a pool that grows. Models without a known architecture are left out.
    """
    rows = read_rows(data / "miso" / UTILIZATION, ("batch_size", "memory_mb"))
    peaks = (Peak(row["model"], row["batch_size"], GPU, row["memory_mb"]) for row in rows)
    return memory_table("miso", peaks, framework="tensorflow", measure="device", states=MISO_STATES, known=MISO)


def memory_table(
    data: str,
    peaks: Iterable[Peak],
    *,
    framework: str,
    measure: str,
    states: int,
    known: Mapping[str, Architecture] | None = None,
) -> dict[str, NDArray[Any]]:
    """A row for each measurement, with ``peak_bytes``; models without a known architecture are left out.

    ``data`` is the data set's name, ``states`` what its optimizer keeps for each parameter, ``known`` what its names of
    models mean; ``framework`` and ``measure`` are those of `MemoryNeed`.
    """
    made, unknown = [], set()
    for peak in peaks:
        network = architecture(peak.model, known)
        features = memory_row(network, peak.batch, states)
        if features is None:
            unknown.add(peak.model)
            continue
        names = {"data": data, "label": f"{data}_{peak.model}", "architecture": network.network}
        how = {"framework": framework, "measure": measure, "gpu": peak.gpu, "batch_size": peak.batch}
        made.append(names | how | {"peak_bytes": peak.mib * MIB} | features)
    log_unknown_models(data, unknown)
    return columns(made)


@cache
def _gpu(cores: int, sms: int) -> str:
    """The GPU type with these numbers of SMs and cores; without one, a name made of them."""
    for gpu in gpu_types().values():
        if gpu.sms != sms or not gpu.fp32_tflops or not gpu.boost_clock_mhz:
            continue
        peak_cores = gpu.fp32_tflops * 1e6 / (2.0 * gpu.boost_clock_mhz)  # two operations a cycle
        if abs(peak_cores / cores - 1.0) < 0.05:
            return gpu.name
    return f"{sms} SMs of {cores // sms} cores"
