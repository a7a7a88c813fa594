"""What of a model's graph decides how much memory its training takes."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2, prod

from gpuwise.graph.ops import Graph, Kind, Op, Phase

INDEX_BYTES = 8
"""PyTorch keeps the place of each maximum of a max pooling as int64; TensorFlow finds it again."""
GROWS_WITH_BATCH = ("saved_bytes", "index_bytes", "largest_write_bytes", "winograd_bytes")
TILE = 32
"""Larger images are transformed in tiles of this size by cuDNN's FFT_TILING."""


def memory_features(graph: Graph) -> dict[str, float]:
    """The columns of `MemoryNeed` that come from the graph; ``gpu``, ``framework`` and ``measure`` are the caller's.

    Precision and optimizer are those with which the graph was made.
    """
    forward = list(graph.of(Phase.FORWARD))
    planes = [op for op in forward if _is_plain(op)]
    return {
        "parameter_bytes": graph.parameter_bytes,
        "trainable_bytes": graph.gradient_bytes,  # 0 where nothing is trained
        "optimizer_states": float(graph.optimizer.states),
        "largest_layer_bytes": 4.0 * max((op.parameters for op in graph.ops), default=0),
        "saved_bytes": graph.saved_bytes,
        "index_bytes": float(sum(INDEX_BYTES * prod(op.output) for op in forward if "max_pool" in op.operator)),
        "largest_write_bytes": max((op.write_bytes for op in forward), default=0.0),
        "winograd_bytes": max((_winograd_bytes(op) for op in planes), default=0.0),
        "fft_bytes": max((_fft_bytes(op) for op in planes), default=0.0),
        "convolutions": float(sum(op.kind is Kind.CONV for op in forward)),
    }


def at_batch(row: Mapping[str, float], traced: int, batch: float) -> dict[str, float]:
    """The row of a graph traced at one batch size, for another: what each sample needs grows in proportion."""
    return {name: value * batch / traced if name in GROWS_WITH_BATCH else value for name, value in row.items()}


def _is_plain(op: Op) -> bool:
    """Whether cuDNN may do a convolution by a transform: 2-d, dense, a window of more than one pixel, no stride."""
    if op.kind is not Kind.CONV or len(op.output) != 4 or op.detail.get("groups", 1) != 1:
        return False
    return min(op.detail["kernel"]) > 1 and max(op.detail["stride"]) == 1 and not op.detail.get("transposed")


def _winograd_bytes(op: Op) -> float:
    """Inputs and outputs of F(4 × 4, 3 × 3): tiles of 36 values for each 16 pixels (Lavin and Gray, 2015)."""
    if tuple(op.detail["kernel"]) != (3, 3):
        return 0.0
    batch, _, height, width = op.output
    tiles = ceil(height / 4) * ceil(width / 4)
    return float(36 * 4 * batch * tiles * (op.detail["channels_in"] + op.detail["channels_out"]))


def _fft_bytes(op: Op) -> float:
    """Transformed filters: half of a complex plane, padded to a power of two, for each pair of channels."""
    window = op.detail["kernel"][0]
    size = min(TILE, 2 ** ceil(log2(op.output[2] + window - 1)))
    return float(8 * size * (size // 2 + 1) * op.detail["channels_in"] * op.detail["channels_out"])
