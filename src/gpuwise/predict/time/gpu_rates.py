"""The figures of GPU types that time models are made of, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from gpuwise.core.errors import UnknownNameError
from gpuwise.devices.catalogue import gpu_type
from gpuwise.predict.base import Floats, PredictionError

FIGURES = ("flops_per_s", "bytes_per_s", "sms", "clock_mhz")


def rates(gpus: Sequence[str], precisions: Sequence[str] | str = "fp32") -> dict[str, Floats]:
    """Peak FLOP/s at each row's precision, memory bandwidth, SMs and clock of each row's GPU type."""
    each = [precisions] * len(gpus) if isinstance(precisions, str) else precisions
    rows = [_figures(gpu, precision) for gpu, precision in zip(gpus, each, strict=True)]
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(FIGURES))
    return {name: table[:, column] for column, name in enumerate(FIGURES)}


def is_known(gpu: str) -> bool:
    """Whether rates, bandwidth and memory of a GPU type are published, as predictions need."""
    kind = gpu_type(gpu)
    return None not in (kind.fp32_tflops, kind.memory_bandwidth_bytes_per_s, kind.memory_bytes)


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
    """Without tensor cores, FP16 runs at the better of both rates: some GPUs run it slower than FP32."""
    return max((each for each in (fp16, fp32) if each is not None), default=None)
