"""What the tests of graphs share: a module in, its graph out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="graphs are traced with PyTorch, which is not installed")

import torch

from gpuwise.graph.ops import PRODUCTS, Graph, Kind, Op, Optimizer, Phase, Precision
from gpuwise.graph.torch.trace import Built, trace


def traced(
    make: Callable[[], torch.nn.Module],
    *shapes: tuple[int, ...],
    precision: Precision = Precision.FP32,
    optimizer: Optimizer = Optimizer.MOMENTUM,
    loss: Callable[..., torch.Tensor] | None = None,
    **inputs: Any,
) -> Graph:
    """The graph of a module on inputs of the shapes given; the first dimension of the first is the batch."""
    batch = shapes[0][0] if shapes else 1

    def build() -> Built:
        return Built(make(), [torch.empty(shape) for shape in shapes], inputs, loss)

    return trace(build, "model", batch=batch, precision=precision, optimizer=optimizer)


def only(graph: Graph, kind: Kind, phase: Phase = Phase.FORWARD) -> Op:
    """The one operator of a kind and phase."""
    (op,) = graph.of(phase, kind)
    return op


def product_macs(graph: Graph, phase: Phase) -> float:
    return sum(op.macs for op in graph.of(phase) if op.kind in PRODUCTS)
