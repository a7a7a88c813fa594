"""The cost of an operator of ONNX: its kind, its floating point operations and details of its shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from gpuwise.graph.ops import GraphError, Kind

Shape = tuple[int, ...]
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the file."""

    name: str
    shape: Shape
    is_float: bool = True
    width_bytes: int = FLOAT_BYTES
    """Of one element."""
    is_weight: bool = False
    """Whether it is a parameter, or only a parameter in another shape."""
    is_stored: bool = False
    """Whether its values are in the file."""

    @property
    def is_fixed(self) -> bool:
        """Whether it exists before the step, whatever the batch."""
        return self.is_weight or self.is_stored

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the file, with its inputs and outputs."""

    operator: str
    name: str
    inputs: list[Value]
    outputs: list[Value]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """Size of the largest input or output."""
        return max((each.elements for each in (*self.inputs, *self.outputs)), default=0)


Formula = Callable[[Node], tuple[float, dict[str, Any]]]


def cost(node: Node) -> tuple[Kind, float, dict[str, Any]] | None:
    """Kind, FLOPs and detail of a node; None without a formula."""
    if node.operator not in FORMULAS:
        return None
    kind, formula = FORMULAS[node.operator]
    try:
        flops, detail = formula(node)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise GraphError(f"{node.operator} {node.name!r} has inputs that it cannot have ({error})") from error
    if kind is Kind.MATMUL and any(each.is_weight for each in node.inputs[:2]):
        kind = Kind.LINEAR
    return kind, flops, detail


def _conv(node: Node) -> tuple[float, dict[str, Any]]:
    given, weight, out = node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape
    transposed = node.operator == "ConvTranspose"
    groups, plane = node.attributes.get("group", 1), len(weight) - 2
    if given[1] != (weight[0] if transposed else weight[1] * groups):
        raise ValueError(f"{given[1]} channels for filters of shape {weight} in {groups} groups")
    detail = {
        "kernel": list(weight[2:]), "stride": list(node.attributes.get("strides", [1] * plane)),
        "padding": list(node.attributes.get("pads", [0] * plane))[:plane], "groups": groups,
        "dilation": list(node.attributes.get("dilations", [1] * plane)), "channels_in": given[1],
        "channels_out": out[1], "transposed": transposed, "input": list(given[2:]),
    }  # fmt: skip
    return 2.0 * prod(given if transposed else out) * prod(weight[1:]), detail


def _gemm(node: Node) -> tuple[float, dict[str, Any]]:
    first, second = node.inputs[0].shape, node.inputs[1].shape
    m, k = first[::-1] if node.attributes.get("transA") else first
    rows, n = second[::-1] if node.attributes.get("transB") else second
    _must_meet(k, rows)
    return 2.0 * m * k * n, {"m": m, "k": k, "n": n, "count": 1}


def _matmul(node: Node) -> tuple[float, dict[str, Any]]:
    first, second, out = node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape
    k, n = first[-1], second[-1] if len(second) > 1 else 1
    _must_meet(k, second[-2] if len(second) > 1 else second[-1])
    rows = prod(out) // n
    m = rows if len(second) < 3 or len(first) < 2 else first[-2]  # one matrix for all rows, or one for each of a stack
    return 2.0 * rows * k * n, {"m": m, "k": k, "n": n, "count": rows // m}


def _must_meet(first: int, second: int) -> None:
    if first != second:
        raise ValueError(f"a product over {first} and {second} values")


def _einsum(node: Node) -> tuple[float, dict[str, Any]]:
    """One multiplication and addition for each combination of all indices."""
    given = node.attributes["equation"]
    terms = (given.decode() if isinstance(given, bytes) else given).replace(" ", "").partition("->")[0].split(",")
    sizes = {letter: size for term, each in zip(terms, node.inputs, strict=True)
             for letter, size in zip(reversed(term), reversed(each.shape), strict=False)}  # fmt: skip
    total = prod(sizes.values())
    out = node.outputs[0].elements
    return 2.0 * total, {"m": out, "k": total // max(out, 1), "n": 1, "count": 1}


def _attention(node: Node) -> tuple[float, dict[str, Any]]:
    """Q·Kᵀ and the product with V; heads are a dimension of their own, or side by side in the last."""
    query, key, value = (each.shape for each in node.inputs[:3])
    heads = query[1] if len(query) == 4 else node.attributes.get("q_num_heads", 1)
    batch, asks, answers = query[0], query[-2], key[-2]
    width = query[-1] if len(query) == 4 else query[-1] // heads
    wide = value[-1] if len(value) == 4 else value[-1] // node.attributes.get("kv_num_heads", heads)
    flops = 2.0 * batch * heads * asks * answers * (width + wide)
    return flops, {"m": asks, "n": answers, "k": width, "count": batch * heads, "fused": True}


def _recurrent(gates: int) -> Formula:
    """The products with the input and with the last state, for each step, gate and direction."""

    def formula(node: Node) -> tuple[float, dict[str, Any]]:
        steps, batch, _ = node.inputs[0].shape
        steps, batch = (batch, steps) if node.attributes.get("layout") else (steps, batch)
        directions, rows, width = node.inputs[1].shape
        hidden = rows // gates
        return 2.0 * steps * batch * directions * rows * (width + hidden), {
            "m": batch, "k": width + hidden, "n": rows, "count": steps * directions, "hidden": hidden,
        }  # fmt: skip

    return formula


def _pool(node: Node) -> tuple[float, dict[str, Any]]:
    given = node.inputs[0].shape
    kernel = list(node.attributes.get("kernel_shape") or given[2:])
    return float(prod(kernel) * node.outputs[0].elements), {"kernel": kernel}


def _norm(node: Node) -> tuple[float, dict[str, Any]]:
    given = node.inputs[0].shape
    channels = given[1] if len(given) > 1 else given[0]
    if node.operator in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        channels = prod(given[node.attributes.get("axis", -1) :])
    elif node.operator == "GroupNormalization":
        channels //= node.attributes.get("num_groups", 1)
    elif node.operator == "LRN":
        channels = node.attributes.get("size", channels)
    return 5.0 * prod(given), {"channels": channels}


def _each(times: float) -> Formula:
    return lambda node: (times * node.elements, {})


_TABLE: tuple[tuple[str, Kind, Formula], ...] = (
    ("Conv ConvTranspose", Kind.CONV, _conv),
    ("Gemm", Kind.LINEAR, _gemm),
    ("MatMul", Kind.MATMUL, _matmul),
    ("Einsum", Kind.MATMUL, _einsum),
    ("Attention", Kind.ATTENTION, _attention),
    ("LSTM", Kind.LINEAR, _recurrent(4)),
    ("GRU", Kind.LINEAR, _recurrent(3)),
    ("RNN", Kind.LINEAR, _recurrent(1)),
    (
        """BatchNormalization LayerNormalization InstanceNormalization GroupNormalization LpNormalization
        RMSNormalization SimplifiedLayerNormalization LRN MeanVarianceNormalization""",
        Kind.NORM,
        _norm,
    ),
    ("MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool", Kind.POOL, _pool),
    ("Relu LeakyRelu PRelu Clip ThresholdedRelu Shrink", Kind.ACTIVATION, _each(1.0)),
    (
        "Sigmoid Tanh Gelu Elu Selu HardSigmoid HardSwish Softplus Softsign Mish Erf Swish Celu",
        Kind.ACTIVATION,
        _each(8.0),
    ),
    ("Softmax LogSoftmax Hardmax", Kind.SOFTMAX, _each(5.0)),
    ("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", Kind.LOSS, _each(4.0)),
    ("Gather GatherElements GatherND Scatter ScatterElements ScatterND OneHot", Kind.EMBEDDING, _each(0.0)),
    (
        """Add Sub Mul Div Pow Sqrt Exp Log Neg Abs Min Max Where Equal Greater Less GreaterOrEqual LessOrEqual Not And
        Or Xor Floor Ceil Round Sign Reciprocal Sum Mean Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Mod
        Dropout IsNaN IsInf BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot QuantizeLinear DequantizeLinear
        RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli RotaryEmbedding""",
        Kind.ELEMENTWISE,
        _each(1.0),
    ),
    ("GridSample AffineGrid Resize Upsample", Kind.ELEMENTWISE, _each(8.0)),
    (
        """ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceLogSum
        ReduceSumSquare ArgMax ArgMin CumSum TopK""",
        Kind.REDUCE,
        _each(1.0),
    ),
    (
        """Concat Split Slice Pad Transpose Tile Expand Cast CastLike DepthToSpace SpaceToDepth Range Trilu
        ReverseSequence EyeLike ConstantOfShape""",
        Kind.COPY,
        _each(0.0),
    ),
)
FORMULAS = {name: (kind, formula) for names, kind, formula in _TABLE for name in names.split()}
FREE = frozenset(("Constant", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Shape", "Size", "Identity"))
"""Operators that only view memory in another way, or query it."""
