"""The work of a step as a row of numbers: totals of its graph, how well shapes suit a GPU's tiles, and busy time."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil, log, prod

from gpuwise.graph.features import features
from gpuwise.graph.ops import PRODUCTS, Graph, Kind, Op, Phase
from gpuwise.predict.base import PredictionError
from gpuwise.predict.time.gpu_rates import rates

NARROW = 64
"""Channels below which a product does not fill the tiles of a GPU's matrix kernels."""
TINY_BYTES = 1e6
COMPUTE_SHARE, MEMORY_SHARE = 0.5, 0.7
"""Of the peak rates, what kernels reach in practice."""
SHORTEST_KERNEL_S = 4e-6
MOST_PRODUCTS = 8
"""Of one operator in one layer, unless it is a loop over a sequence."""

SHAPES = (
    "tile_flops", "grouped_tile_flops", "narrow_in_flops", "narrow_out_flops", "narrow_product_flops",
    "uneven_flops", "uneven_bytes", "other_window_flops", "depthwise_window_bytes", "fp32_bytes", "tiny_ops",
    "forward_loop_heavy_ops", "forward_loop_light_ops", "backward_loop_heavy_ops", "backward_loop_light_ops",
    "grouped_log_width", "grouped_log_groups", "grouped_by32_flops", "grouped_by8_flops", "grouped_strided_flops",
)  # fmt: skip
"""What `work` adds to the graph's features, summed over the forward and backward pass:

``tile_flops``: FLOPs of products with their sides rounded up to tiles (grouped convolutions once more by themselves);
``narrow_*``: FLOPs of products with a side below 64; ``uneven_*``: of convolutions with channels not in multiples of 8;
``other_window_flops``: of convolutions with windows that are neither 1 × 1 nor 3 × 3 at stride 1;
``depthwise_window_bytes``: bytes of depthwise convolutions times the size of their window; ``fp32_bytes``: bytes of
operators that give single precision; ``tiny_ops``: operators that move less than 1 MB; ``grouped_*``: FLOPs of grouped
convolutions, times the logarithm of channels in a group and of groups, with groups in multiples of 32, channels in a
group in multiples of 8, and strides above 1; ``*_loop_*_ops``: operators of recurrent layers, with and without
weights, which libraries run as one call.
"""


def work(graph: Graph) -> dict[str, float]:
    """The row of a graph: `gpuwise.graph.features.features` and `SHAPES`."""
    row: dict[str, float] = defaultdict(float, dict.fromkeys(SHAPES, 0.0))
    recurrent = _recurrent(graph)
    for op in graph.ops:
        if op.phase is Phase.UPDATE:
            continue
        if op.layer in recurrent:
            row[f"{op.phase}_loop_{'heavy' if op.kind in PRODUCTS else 'light'}_ops"] += 1
        if op.kind is Kind.CONV:
            _convolution(op, row)
        elif op.kind in (Kind.LINEAR, Kind.MATMUL):
            _product(op, row)
        row["fp32_bytes"] += op.bytes * (op.dtype == "float32")
        row["tiny_ops"] += op.bytes < TINY_BYTES
    return features(graph) | dict(row)


def _recurrent(graph: Graph) -> set[str]:
    """Layers that run the same product again and again, one after the other: those of LSTMs and GRUs."""
    times = Counter((op.layer, op.operator) for op in graph.of(Phase.FORWARD) if op.kind in (Kind.LINEAR, Kind.MATMUL))
    return {layer for (layer, _), count in times.items() if layer and count > MOST_PRODUCTS}


def _convolution(op: Op, row: dict[str, float]) -> None:
    groups = op.detail["groups"]
    ins, outs = op.detail["channels_in"] / groups, op.detail["channels_out"] / groups
    window, strided = prod(op.detail["kernel"]), max(op.detail["stride"]) > 1
    if op.is_depthwise:
        row["depthwise_window_bytes"] += op.bytes * window
        return
    tiled = op.flops * _rounded(ins, 32) * _rounded(outs, NARROW)
    row["tile_flops"] += tiled
    row["narrow_in_flops"] += op.flops * (ins < NARROW)
    row["narrow_out_flops"] += op.flops * (outs < NARROW)
    if ins % 8 or outs % 8:
        row["uneven_flops"] += op.flops
        row["uneven_bytes"] += op.bytes
    if groups > 1:
        row["grouped_tile_flops"] += tiled
        row["grouped_log_width"] += op.flops * log(ins)
        row["grouped_log_groups"] += op.flops * log(groups)
        row["grouped_by32_flops"] += op.flops * (groups % 32 == 0)
        row["grouped_by8_flops"] += op.flops * (ins % 8 == 0)
        row["grouped_strided_flops"] += op.flops * strided
    elif window > 1 and (strided or set(op.detail["kernel"]) != {3}):
        row["other_window_flops"] += op.flops


def _product(op: Op, row: dict[str, float]) -> None:
    m, n, k = (op.detail[side] for side in ("m", "n", "k"))
    row["tile_flops"] += op.flops * _rounded(m, NARROW) * _rounded(n, NARROW) * _rounded(k, 32)
    row["narrow_product_flops"] += op.flops * (min(m, n, k) < NARROW)


def _rounded(side: float, tile: int) -> float:
    """How many times as much there is to do with a side rounded up to whole tiles."""
    return ceil(side / tile) * tile / side if side else 1.0


def own_row(graph: Graph, gpu: str) -> dict[str, float]:
    """FLOPs, kernels and busy time of a step as traced, at its own precision."""
    return _row(graph, graph, 0.0, gpu, 1, str(graph.precision))


def work_row(small: Graph, large: Graph, batch: float, gpu: str, pieces: int = 1) -> dict[str, float]:
    """FLOPs, kernels and busy time of a step at a batch size, interpolated linearly between two traces.

    Two traces separate what grows with the batch from what does not, like reading parameters. ``pieces`` is how often
    each kernel runs where the trace has what repeats over time only once. Products run in TF32 where the GPU has it, as
    frameworks have it by default.
    """
    if len(small.ops) != len(large.ops) or small.batch >= large.batch:
        raise PredictionError(f"{small.model}: two traces of the same operators are needed, the smaller batch first")
    return _row(small, large, (batch - small.batch) / (large.batch - small.batch), gpu, pieces, "tf32")


def _row(small: Graph, large: Graph, along: float, gpu: str, pieces: int, precision: str) -> dict[str, float]:
    peak = rates([gpu, gpu], ["fp32", precision])
    (plain, product), bandwidth = peak["flops_per_s"].tolist(), float(peak["bytes_per_s"][0])
    flops, busy_s = 0.0, 0.0
    for one, other in zip(small.ops, large.ops, strict=True):
        work = max(one.flops + along * (other.flops - one.flops), 0.0)
        moved = max(one.bytes + along * (other.bytes - one.bytes), 0.0)
        computing = work / (COMPUTE_SHARE * (product if one.kind in PRODUCTS else plain))
        flops += work
        moving = moved / (MEMORY_SHARE * bandwidth)
        busy_s += max(computing, moving, pieces * SHORTEST_KERNEL_S)
    return {
        "batch_size": small.batch + along * (large.batch - small.batch),
        "flops": flops,
        "kernels": float(pieces * len(small.ops)),
        "busy_time_s": busy_s,
        "parameter_bytes": small.parameter_bytes,
        "activation_bytes": small.saved_bytes + along * (large.saved_bytes - small.saved_bytes),
    }
