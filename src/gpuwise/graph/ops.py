"""Operators and graphs: one training step of a model, as the list of operators that a GPU runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any, Self

from gpuwise.core.errors import GpuwiseError

VERSION = 1
"""Of the JSON document; other versions are not read."""


class GraphError(GpuwiseError):
    """A model that cannot be built or traced."""


class Kind(StrEnum):
    """What an operator does, as far as its speed is concerned."""

    CONV = "conv"
    LINEAR = "linear"
    MATMUL = "matmul"
    ATTENTION = "attention"
    NORM = "norm"
    POOL = "pool"
    ACTIVATION = "activation"
    SOFTMAX = "softmax"
    LOSS = "loss"
    EMBEDDING = "embedding"
    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    COPY = "copy"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class Phase(StrEnum):
    """The part of a step in which an operator runs."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Precision(StrEnum):
    """Number format. Mixed precision keeps parameters in fp32 and computes where it can in 16 bits."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def is_mixed(self) -> bool:
        """Whether it is mixed precision."""
        return self in (Precision.FP16, Precision.BF16)


class Optimizer(StrEnum):
    """The optimizer that updates the parameters."""

    NONE = "none"
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"

    @property
    def states(self) -> int:
        """Values kept for each parameter between steps."""
        return {"none": 0, "sgd": 0, "momentum": 1, "adam": 2}[self]


@dataclass(frozen=True, slots=True)
class Op:
    """One operator of a step, for the whole batch."""

    kind: Kind
    phase: Phase
    operator: str
    """The framework's name of it: ``aten.convolution``, ``onnx.Conv``."""
    layer: str
    """Where in the model: ``layer1.0.conv1``."""
    flops: float
    """Floating point operations: a multiplication with its addition counts as two."""
    read_bytes: float
    write_bytes: float
    output: tuple[int, ...] = ()
    """The shape of the first result."""
    saved_bytes: float = 0.0
    """What it saves for the backward pass, beyond what earlier operators have saved."""
    parameters: int = 0
    """Parameters that it is the first to use."""
    dtype: str = "float32"
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Of a convolution: kernel, stride, padding, dilation, groups, channels_in, channels_out, transposed; of matrix
    products: m, n, k, count; of pooling: kernel; of normalization: channels, the values normalized together."""

    @property
    def bytes(self) -> float:
        """Bytes moved from and to memory."""
        return self.read_bytes + self.write_bytes

    @property
    def macs(self) -> float:
        """Multiplications with their additions."""
        return self.flops / 2.0

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a convolution of each channel by itself."""
        groups = self.detail.get("groups", 1)
        return self.kind is Kind.CONV and groups > 1 and groups == self.detail.get("channels_in")


@dataclass(frozen=True)
class Graph:
    """A training step of a model at a batch size, or with ``Optimizer.NONE`` its forward pass."""

    model: str
    batch: int
    precision: Precision
    optimizer: Optimizer
    ops: tuple[Op, ...]
    parameters: int
    parameter_bytes: float
    buffer_bytes: float
    input_bytes: float
    input_shape: tuple[int, ...]
    peak_bytes: float
    """The most that is live at once beside parameters, buffers, inputs and optimizer state: activations and the
    gradients of activations and parameters."""
    saved_bytes: float
    """What the forward pass keeps for the backward pass, beside parameters; inputs that are kept are in it."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators without a formula, by number of occurrences: their bytes are counted, their FLOPs are a guess."""
    notes: tuple[str, ...] = ()
    trainable_parameters: int | None = None
    """Number of parameters that are trained; None: all."""
    trainable_bytes: float | None = None
    """Size of the parameters that are trained; None: all of ``parameter_bytes``."""

    def of(self, phase: Phase | None = None, kind: Kind | None = None) -> Iterable[Op]:
        """The operators of a phase or kind."""
        return (op for op in self.ops if (phase is None or op.phase is phase) and (kind is None or op.kind is kind))

    @cached_property
    def forward_macs(self) -> float:
        """Multiply-adds of convolutions and matrix products in the forward pass, as papers count a network's cost."""
        return sum(op.macs for op in self.of(Phase.FORWARD) if op.kind in PRODUCTS)

    @cached_property
    def flops(self) -> float:
        """All floating point operations of the step."""
        return sum(op.flops for op in self.ops)

    @cached_property
    def bytes(self) -> float:
        """All bytes that the step's operators move."""
        return sum(op.bytes for op in self.ops)

    @property
    def gradient_bytes(self) -> float:
        """Size of the gradients of the parameters that are trained."""
        return 0.0 if self.optimizer is Optimizer.NONE else self._trained_bytes

    @property
    def optimizer_bytes(self) -> float:
        """Size of the optimizer's state."""
        return self.optimizer.states * self._trained_bytes

    @property
    def _trained_bytes(self) -> float:
        return self.parameter_bytes if self.trainable_bytes is None else self.trainable_bytes

    def to_json(self) -> str:
        """The graph as a JSON document."""
        document = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "ops"}
        columns = [each.name for each in fields(Op)]
        rows = [[getattr(op, name) for name in columns] for op in self.ops]
        return json.dumps({"gpuwise_graph": VERSION} | document | {"columns": columns, "ops": rows})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        try:
            document = json.loads(text)
            if document.pop("gpuwise_graph") != VERSION:
                raise GraphError("a graph of another version of gpuwise; trace the model again")
            columns = document.pop("columns")
            ops = tuple(_op(dict(zip(columns, row, strict=True))) for row in document.pop("ops"))
            document |= {
                "precision": Precision(document["precision"]),
                "optimizer": Optimizer(document["optimizer"]),
                "input_shape": tuple(document["input_shape"]),
                "notes": tuple(document["notes"]),
                "unknown": dict(document["unknown"]),
            }
            graph = cls(ops=ops, **document)
            _check_numbers(graph, GRAPH_NUMBERS)
            return graph
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise GraphError(f"not a graph that gpuwise has written, or a damaged one ({error!r})") from error


PRODUCTS = frozenset((Kind.CONV, Kind.LINEAR, Kind.MATMUL, Kind.ATTENTION))


GRAPH_NUMBERS = ("batch", "parameters", "parameter_bytes", "buffer_bytes", "input_bytes", "peak_bytes", "saved_bytes")
OP_NUMBERS = ("flops", "read_bytes", "write_bytes", "saved_bytes", "parameters")
UPDATE_FLOPS = {Optimizer.SGD: 2.0, Optimizer.MOMENTUM: 4.0, Optimizer.ADAM: 12.0}
"""Floating point operations of an update for each parameter."""


def update_ops(optimizer: Optimizer, parameters: int, parameter_bytes: float | None = None) -> list[Op]:
    """One pass over all parameters: reads each value, its gradient and its states, writes the value and the states.

    Gradients and states have the size of the parameters: 4 bytes per value, unless ``parameter_bytes`` is given.
    """
    if optimizer is Optimizer.NONE or not parameters:
        return []
    values = 1 + optimizer.states
    size = 4.0 * parameters if parameter_bytes is None else parameter_bytes
    return [
        Op(
            kind=Kind.OPTIMIZER,
            phase=Phase.UPDATE,
            operator=f"optimizer.{optimizer}",
            layer="",
            flops=UPDATE_FLOPS[optimizer] * parameters,
            read_bytes=size * (values + 1),
            write_bytes=size * values,
            output=(parameters,),
        )
    ]


def _op(entry: dict[str, Any]) -> Op:
    entry |= {"kind": Kind(entry["kind"]), "phase": Phase(entry["phase"]), "output": tuple(entry["output"])}
    op = Op(**entry)
    _check_numbers(op, OP_NUMBERS)
    return op


def _check_numbers(thing: object, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(thing, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < inf:
            raise ValueError(f"{name} is {value!r}")
