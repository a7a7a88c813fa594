"""The parts that a step's time is a sum of: each is the time of some operators at a GPU's peak rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuwise.graph.features import GROUPS
from gpuwise.predict.base import Columns, Floats
from gpuwise.predict.columns import floats, strings
from gpuwise.predict.time.gpu_rates import rates

PRODUCTS = ("conv", "conv1x1", "grouped", "depthwise", "linear", "matmul", "attention")
MEMORY = ("norm", "activation", "pool", "softmax", "elementwise", "copy", "reduce")
PASSES = ("forward", "backward")
HEAVY = (*PRODUCTS, "norm")
KERNEL_S = 3e-6
"""Between two kernels on a GPU."""

NAMES = (
    *(f"{group} {by}" for group in PRODUCTS for by in ("flops", "bytes")),
    *(f"{phase} {group}" for group in MEMORY for phase in PASSES),
    "rest", "update", "kernels", "tiles", "grouped tiles", "depthwise windows", "uneven", "other windows",
)  # fmt: skip
_EXTRA = ("tiles", "grouped tiles", "depthwise windows", "uneven", "other windows")


def terms(X: Columns) -> Floats:  # noqa: N803
    """Seconds of each part at peak rates: FLOPs over the peak of the row's precision, bytes over the bandwidth."""
    gpu = rates(strings(X, "gpu"), strings(X, "precision"))
    peak, bandwidth = gpu["flops_per_s"], gpu["bytes_per_s"]

    def both(group: str, unit: str) -> Floats:
        return column(X, f"forward_{group}_{unit}") + column(X, f"backward_{group}_{unit}")

    parts = []
    for group in PRODUCTS:
        flops = both(group, "flops")
        if group == "conv":
            flops = flops - _spared(X, flops)
        parts += [flops / peak, both(group, "bytes") / bandwidth]
    parts += [column(X, f"{phase}_{group}_bytes") / bandwidth for group in MEMORY for phase in PASSES]
    counts = host_counts(X).sum(axis=1)
    parts += [
        sum((both(group, "bytes") for group in ("loss", "embedding", "other")), np.zeros(len(peak))) / bandwidth,
        column(X, "update_optimizer_bytes") / bandwidth,
        counts * KERNEL_S,
        column(X, "tile_flops") / peak,
        column(X, "grouped_tile_flops") / peak,
        column(X, "depthwise_window_bytes") / bandwidth,
        column(X, "uneven_bytes") / bandwidth,
        column(X, "other_window_flops") / peak,
    ]
    return np.column_stack(parts)


def _spared(X: Columns, flops: Floats) -> Floats:  # noqa: N803
    """FLOPs that Winograd's algorithm F(2×2, 3×3) spares: 3 × 3 windows at stride 1, in single precision."""
    single = np.asarray([precision == "fp32" for precision in strings(X, "precision")])
    return np.asarray(
        np.where(single, (1.0 - 1.0 / 2.25) * np.maximum(flops - column(X, "other_window_flops"), 0.0), 0.0)
    )


def host_counts(X: Columns) -> Floats:  # noqa: N803
    """Number of operators that the host starts: with and without weights, in Python forward, in C++ backward."""
    light = [group for group in GROUPS if group not in HEAVY]
    counts = []
    for phase in PASSES:
        for name, groups in (("heavy", HEAVY), ("light", light)):
            every = sum((column(X, f"{phase}_{group}_ops") for group in groups), np.zeros(len(strings(X, "gpu"))))
            counts.append(np.maximum(every - column(X, f"{phase}_loop_{name}_ops"), 0.0))
    return np.column_stack(counts)


def priors() -> tuple[Floats, Floats]:
    """Priors of the factors and of the host's seconds per operator, as logarithms.

    Products reach two thirds of the peak, memory its bandwidth; corrections for shapes are small. A host takes tens of
    microseconds for an operator called from Python, and a few for one that autograd calls.
    """
    factor = [1.5 if name.endswith("flops") else 1.0 for name in NAMES]
    small = [0.05 if name in _EXTRA else 1.0 for name in NAMES]
    return np.log(factor) + np.log(small), np.log([30e-6, 15e-6, 40e-6, 5e-6])


def shape_features(X: Columns) -> Floats:  # noqa: N803
    """Other features of networks: sizes, intensity, and shares of work in shapes that GPUs run well or badly."""

    def share(part: str, whole: str) -> Floats:
        total = column(X, whole)
        return np.divide(column(X, part), total, out=np.zeros_like(total), where=total > 0)

    grouped = column(X, "forward_grouped_flops") + column(X, "backward_grouped_flops")
    of_grouped = [
        np.divide(column(X, f"grouped_{name}"), grouped, out=np.full_like(grouped, -1.0), where=grouped > 0)
        for name in ("log_width", "log_groups", "by32_flops", "by8_flops", "strided_flops")
    ]
    sizes = [np.log(np.maximum(column(X, name), 1.0)) for name in ("batch", "input_size", "parameters")]
    shares = [
        share(part, whole)
        for part, whole in (
            ("narrow_in_flops", "flops"), ("narrow_out_flops", "flops"), ("narrow_product_flops", "flops"),
            ("uneven_flops", "flops"), ("tile_flops", "flops"), ("fp32_bytes", "bytes"), ("tiny_ops", "ops"),
            ("depthwise_window_bytes", "bytes"), ("saved_bytes", "bytes"),
        )
    ]  # fmt: skip
    intensity = [np.log(np.maximum(share("flops", "bytes"), 1e-3)), np.log(np.maximum(share("bytes", "ops"), 1.0))]
    return np.column_stack([*of_grouped, *sizes, *intensity, *shares])


def column(X: Columns, name: str) -> Floats:  # noqa: N803
    """A column of work; one that is absent is 0, as a network need not have every kind of operator."""
    try:
        given: Any = X[name]
    except KeyError:
        return np.zeros(len(strings(X, "gpu")))
    return np.nan_to_num(floats({name: given}, name))
