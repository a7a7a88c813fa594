"""The figures of GPU types that time models are made of, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from gpuwise.core.errors import UnknownNameError
from gpuwise.devices.catalogue import gpu_type
from gpuwise.predict.base import Floats, PredictionError, rows_where
from gpuwise.predict.fitting.data.tables import tell

FIGURES = ("flops_per_s", "bytes_per_s", "sms", "clock_mhz")


def rates(gpus: Sequence[str], precisions: Sequence[str] | str = "fp32") -> dict[str, Floats]:
    """Peak FLOP/s at each row's precision, memory bandwidth, SMs and clock of each row's GPU type."""
    each = [precisions] * len(gpus) if isinstance(precisions, str) else precisions
    rows = [_figures(gpu, precision) for gpu, precision in zip(gpus, each, strict=True)]
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(FIGURES))
    return {name: table[:, column] for column, name in enumerate(FIGURES)}


def is_known(gpu: str) -> bool:
    """Whether enough is published about a GPU type to foresee anything of it: rates, bandwidth and memory."""
    kind = gpu_type(gpu)
    return None not in (kind.fp32_tflops, kind.memory_bandwidth_bytes_per_s, kind.memory_bytes)


def on_known_gpus(table: Mapping[str, Any]) -> dict[str, Any]:
    """The rows whose GPU the catalogue has rates of; that others are left out is told."""
    gpus = [str(gpu) for gpu in table["gpu"]]
    known = {gpu: _has_rates(gpu) for gpu in sorted(set(gpus))}
    if strange := [gpu for gpu, there in known.items() if not there]:
        tell(f"times on GPUs that the catalogue has no rates of: {', '.join(strange)} (see gpuwise gpus)")
    if not any(known.values()):
        raise PredictionError(f"no times on a GPU that the catalogue has rates of, only on {', '.join(strange)}")
    return rows_where(table, np.asarray([known[gpu] for gpu in gpus], dtype=np.bool_))


def _has_rates(gpu: str) -> bool:
    try:
        return is_known(gpu)
    except UnknownNameError:
        return False


def canonical(gpus: Sequence[str]) -> list[str]:
    """The catalogue's name of each GPU; names that it does not know stay as they are."""
    return [_canonical(gpu) for gpu in gpus]


@cache
def _canonical(gpu: str) -> str:
    try:
        return gpu_type(gpu).name
    except UnknownNameError:
        return gpu


@cache
def _figures(gpu: str, precision: str) -> tuple[float, float, float, float]:
    try:
        kind = gpu_type(gpu)
    except UnknownNameError as error:
        raise PredictionError(f"the speed of {gpu!r} is not known: {error}") from error
    peak = {
        "fp64": kind.fp64_tflops,
        "fp32": kind.fp32_tflops,
        "tf32": kind.tf32_tensor_tflops or kind.fp32_tflops,
        "fp16": kind.fp16_tensor_tflops or _half(kind.fp16_tflops, kind.fp32_tflops),
        "bf16": kind.bf16_tensor_tflops or kind.fp16_tensor_tflops or kind.fp32_tflops,
    }
    if precision not in peak:
        raise PredictionError(f"precision {precision!r} is not one of {', '.join(peak)}")
    tflops, bandwidth = peak[precision], kind.memory_bandwidth_bytes_per_s
    if tflops is None or bandwidth is None:
        raise PredictionError(f"the catalogue has no {precision} rate or no memory bandwidth of {kind.name}")
    clock = kind.boost_clock_mhz or 1500.0
    sms = kind.sms or tflops * 1e6 / (256.0 * clock)  # 128 FP32 lanes in an SM
    return tflops * 1e12, bandwidth, float(sms), clock


def _half(fp16: float | None, fp32: float | None) -> float | None:
    """Without tensor cores halves are computed at the better of both rates: some GPUs run them slower than singles."""
    return max((each for each in (fp16, fp32) if each is not None), default=None)
