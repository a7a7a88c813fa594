"""How long a step keeps the device busy: a plain roofline over its operators, without launches and input."""

from __future__ import annotations

from gpuwise.graph.ops import PRODUCTS, Graph
from gpuwise.predict.base import PredictionError
from gpuwise.predict.time.gpu_rates import rates

COMPUTE_SHARE, MEMORY_SHARE = 0.5, 0.7
"""Of the peak rates, what kernels reach in practice."""
SHORTEST_KERNEL_S = 4e-6


def own_row(graph: Graph, gpu: str) -> dict[str, float]:
    """FLOPs, kernels and busy time of a step as it was traced, at its own precision."""
    return _row(graph, graph, 0.0, gpu, 1, str(graph.precision))


def work_row(small: Graph, large: Graph, batch: float, gpu: str, pieces: int = 1) -> dict[str, float]:
    """FLOPs, kernels and busy time of a step at a batch size, on the line through two traces at others.

    The line tells apart what grows with the batch and what does not, like reading parameters. ``pieces`` is how often
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
