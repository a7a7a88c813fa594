"""Features: a graph as a row of numbers, for predictors and for tables."""

from __future__ import annotations

from collections import defaultdict

from gpuwise.graph.ops import PRODUCTS, Graph, Kind, Op, Phase

GROUPS = ("conv", "conv1x1", "grouped", "depthwise", "linear", "matmul", "attention", "norm", "pool", "activation",
          "softmax", "loss", "embedding", "elementwise", "reduce", "copy", "optimizer", "other")  # fmt: skip
"""Kinds of operators, with convolutions split by how well they use a GPU."""


def group_of(op: Op) -> str:
    """The group of an operator."""
    if op.kind is not Kind.CONV:
        return str(op.kind)
    if op.is_depthwise:
        return "depthwise"
    if op.detail.get("groups", 1) > 1:
        return "grouped"
    return "conv1x1" if set(op.detail.get("kernel", ())) == {1} else "conv"


def features(graph: Graph) -> dict[str, float]:
    """A row of features: totals of the model, and FLOPs, bytes and number of operators per phase and group.

    ``forward_conv_flops``, ``backward_norm_bytes``, ``forward_linear_ops`` and so on are for the whole batch.
    """
    row: dict[str, float] = defaultdict(float)
    for op in graph.ops:
        prefix = f"{op.phase}_{group_of(op)}"
        row[f"{prefix}_flops"] += op.flops
        row[f"{prefix}_bytes"] += op.bytes
        row[f"{prefix}_ops"] += 1
    return dict(row) | _totals(graph)


def _totals(graph: Graph) -> dict[str, float]:
    sized = graph.input_shape[1:]
    products = [op for op in graph.of(Phase.FORWARD) if op.kind in PRODUCTS]
    return {
        "batch": float(graph.batch),
        "parameters": float(graph.parameters),
        "parameter_bytes": graph.parameter_bytes,
        "buffer_bytes": graph.buffer_bytes,
        "input_bytes": graph.input_bytes,
        "input_size": float(sized[-1]) if sized else 0.0,
        "saved_bytes": graph.saved_bytes,
        "peak_bytes": graph.peak_bytes,
        "gradient_bytes": graph.gradient_bytes,
        "optimizer_bytes": graph.optimizer_bytes,
        "forward_macs": graph.forward_macs,
        "flops": graph.flops,
        "bytes": graph.bytes,
        "ops": float(len(graph.ops)),
        "layers": float(len({op.layer for op in products})),
        "largest_write_bytes": max((op.write_bytes for op in graph.ops), default=0.0),
        "activation_elements": float(sum(_elements(op) for op in products)),
    }


def _elements(op: Op) -> float:
    total = 1.0
    for size in op.output:
        total *= size
    return total
