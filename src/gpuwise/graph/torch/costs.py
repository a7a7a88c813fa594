"""Formulas: from the shapes with which an operator of PyTorch was called to its cost.

Products count 2 FLOPs for a multiplication with its addition. Backward operators that make two gradients cost twice
the forward. Of the rest the constants are the arithmetic of the textbook formula for an element; such operators are
bound by memory, so their bytes matter, not these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log2, prod
from typing import Any

from gpuwise.graph.ops import Kind

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The result of a formula."""

    kind: Kind
    flops: float
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator as it was called: shapes in place of tensors."""

    args: Sequence[Any]
    kwargs: dict[str, Any]
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]

    def shape(self, position: int) -> Shape:
        """The shape of a tensor argument."""
        given: Shape = self.args[position]
        return given

    def get(self, position: int, name: str, default: Any) -> Any:
        """An argument by position or name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


Formula = Callable[[Call], Cost]


def conv(call: Call) -> Cost:
    """aten.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)"""
    return _convolution(call.shape(0), call.shape(1), call.outputs[0], call.args, 1.0)


def conv_backward(call: Call) -> Cost:
    """aten.convolution_backward(grad, input, weight, bias_sizes, stride, …, groups, output_mask)"""
    grad, given, weight = (call.shape(position) for position in range(3))
    mask = call.get(10, "output_mask", (True, True, True))
    args = (given, weight, None, *call.args[4:10])
    return _convolution(given, weight, grad, args, float(bool(mask[0])) + float(bool(mask[1])))


def _convolution(given: Shape, weight: Shape, out: Shape, args: Sequence[Any], times: float) -> Cost:
    stride, padding, dilation, transposed, _, groups = args[3:9]
    # Each output element sums over kernel × input channels of its group; a transposed one scatters each input likewise.
    elements = prod(given) if transposed else prod(out)
    flops = 2.0 * elements * prod(weight[1:]) * times
    detail = {
        "kernel": list(weight[2:]), "stride": list(stride), "padding": list(padding), "dilation": list(dilation),
        "groups": groups, "channels_in": given[1], "channels_out": out[1], "transposed": bool(transposed),
        "input": list(given[2:]),
    }  # fmt: skip
    return Cost(Kind.CONV, flops, detail)


def _product(m: int, k: int, n: int, count: int = 1, kind: Kind = Kind.LINEAR) -> Cost:
    return Cost(kind, 2.0 * count * m * k * n, {"m": m, "k": k, "n": n, "count": count})


def mm(call: Call) -> Cost:
    """(m, k) × (k, n)"""
    (m, k), (_, n) = call.inputs[0], call.inputs[1]
    return _product(m, k, n)


def addmm(call: Call) -> Cost:
    """bias + (m, k) × (k, n)"""
    (m, k), (_, n) = call.inputs[1], call.inputs[2]
    return _product(m, k, n)


def linear(call: Call) -> Cost:
    """(…, k) × (n, k)ᵀ"""
    given, weight = call.inputs[0], call.inputs[1]
    return _product(prod(given[:-1]), given[-1], weight[0])


def bmm(call: Call) -> Cost:
    """(count, m, k) × (count, k, n)"""
    (count, m, k), n = call.inputs[-2], call.inputs[-1][-1]
    return _product(m, k, n, count, Kind.MATMUL)


def grouped(call: Call) -> Cost:
    """Each row is multiplied by the matrix of its group."""
    m, k = call.inputs[0][-2:]
    return _product(m, k, call.inputs[1][-1], kind=Kind.MATMUL)


def mv(call: Call) -> Cost:
    """(m, k) × (k)"""
    m, k = call.inputs[-2]
    return _product(m, k, 1)


def attention(call: Call) -> Cost:
    """Q·Kᵀ and the product with V, each 2·B·H·Sq·Sk·D."""
    query, key, value = call.inputs[:3]
    return _attend(query, key, value, 1.0)


def attention_backward(call: Call) -> Cost:
    """Five products in place of two: the scores are computed again, then four gradients."""
    query, key, value = call.inputs[1:4]
    return _attend(query, key, value, 2.5)


def _attend(query: Shape, key: Shape, value: Shape, times: float) -> Cost:
    heads, asks, answers = prod(query[:-2]), query[-2], key[-2]
    flops = 2.0 * heads * asks * answers * (query[-1] + value[-1]) * times
    return Cost(Kind.ATTENTION, flops, {"m": asks, "n": answers, "k": query[-1], "count": heads, "fused": True})


def each(kind: Kind, per_element: float) -> Formula:
    """A fixed number of operations for each element of the largest tensor."""

    def formula(call: Call) -> Cost:
        largest = max((prod(shape) for shape in (*call.inputs, *call.outputs)), default=0)
        return Cost(kind, per_element * largest)

    return formula


def norm(channels: Callable[[Call], int]) -> Formula:
    """Mean, variance, and for each element a subtraction, a division, a product and a sum."""

    def formula(call: Call) -> Cost:
        return Cost(Kind.NORM, 5.0 * prod(call.inputs[0]), {"channels": channels(call)})

    return formula


def pool(dimensions: int) -> Formula:
    """One operation for each element of each window."""

    def formula(call: Call) -> Cost:
        given = call.args[1]
        kernel = list(given) if isinstance(given, (list, tuple)) else [given]
        kernel = kernel * dimensions if len(kernel) == 1 else kernel
        return Cost(Kind.POOL, float(prod(kernel)) * prod(call.outputs[0]), {"kernel": kernel})

    return formula


def adaptive_pool(call: Call) -> Cost:
    """Each element of the input is in about one window."""
    given, out = call.inputs[0], call.outputs[0]
    kernel = [-(-size // max(made, 1)) for size, made in zip(given[2:], out[2:], strict=False)]
    return Cost(Kind.POOL, float(prod(given)), {"kernel": kernel})


def mean(call: Call) -> Cost:
    """The mean over the whole plane of each channel is global average pooling."""
    given, dimensions = call.inputs[0], call.get(1, "dim", None) or ()
    over = {each % len(given) for each in dimensions} if given else set()
    if len(given) > 3 and over == set(range(2, len(given))):
        return Cost(Kind.POOL, float(prod(given)), {"kernel": list(given[2:])})
    return Cost(Kind.REDUCE, float(prod(given)))


def fourier(call: Call) -> Cost:
    """5 n log2 n for a transform of n points (Cooley and Tukey), over the dimensions named."""
    given = call.inputs[0] if prod(call.inputs[0]) >= prod(call.outputs[0]) else call.outputs[0]
    points = prod(given[each] for each in call.args[1])
    return Cost(Kind.ELEMENTWISE, 5.0 * prod(given) * log2(max(points, 2)))
