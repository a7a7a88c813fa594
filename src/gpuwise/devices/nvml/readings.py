"""What a GPU does at this moment, asked of its driver; what the driver does not tell is NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import pynvml  # type: ignore[import-untyped]

from gpuwise.devices.machine import Reading

Handle: TypeAlias = Any
"""A GPU or a slice of one, as NVML knows it in this session."""


def reading(gpu: Handle, slices: Iterable[Handle]) -> Reading:
    """All that can be read of a GPU; ``slices`` are those it is cut into."""
    used, total = memory_bytes(gpu)
    return Reading(
        util_frac=_number(lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
        memory_used_bytes=used,
        memory_total_bytes=total,
        power_w=_number(lambda: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
        temperature_c=_number(
            lambda: pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU),
            lambda: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        ),
        sm_clock_mhz=_number(lambda: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
        processes=_processes(gpu, slices),
    )


def memory_bytes(gpu: Handle) -> tuple[float, float]:
    """Used and in all; drivers before R510 count what they keep for themselves as used."""
    for version in (pynvml.nvmlMemory_v2, None):
        with suppress(pynvml.NVMLError):
            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=version)
            return float(memory.used), float(memory.total)
    return math.nan, math.nan


def processes(handle: Handle) -> dict[int, float]:
    """Memory by process on a GPU or a slice, the clients of MPS among them."""
    found: dict[int, float] = {}
    for listed in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle),
        _or_none(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle),
    ):
        for process in listed or ():
            used = math.nan if process.usedGpuMemory is None else float(process.usedGpuMemory)
            known = found.get(process.pid, math.nan)
            found[process.pid] = used if math.isnan(known) else max(known, used)
    return found


def _processes(gpu: Handle, slices: Iterable[Handle]) -> dict[int, float]:
    """For a GPU that is cut the driver tells only root of all of it at once, but everybody of each slice."""
    for handles in ((gpu,), slices):
        with suppress(pynvml.NVMLError):
            return {pid: used for handle in handles for pid, used in processes(handle).items()}
    return {}


def _number(*ways: Callable[[], float]) -> float:
    """By the first way the driver supports."""
    for read in ways:
        with suppress(pynvml.NVMLError):
            return float(read())
    return math.nan


def _or_none(call: Callable[[Handle], Any], handle: Handle) -> Any:
    with suppress(pynvml.NVMLError):
        return call(handle)
    return None
