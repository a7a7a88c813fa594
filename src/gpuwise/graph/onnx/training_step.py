"""A training step from the forward pass of an ONNX file: what is in 16 bits, what is saved, and the backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuwise.graph.onnx.formulas import FREE, Node, Value, cost
from gpuwise.graph.ops import PRODUCTS, Kind, Op, Phase, Precision

_IN_FP32 = """
    LayerNormalization GroupNormalization RMSNormalization SimplifiedLayerNormalization Softmax LogSoftmax Exp Log Pow
    Reciprocal Softplus CumSum ReduceSum ReduceProd ReduceL1 ReduceL2 SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss
"""
IN_FP32 = frozenset(_IN_FP32.split())
"""What mixed precision computes in fp32, as CUDA's autocast does."""
KEEPS_OUTPUT = frozenset(("Relu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Sqrt", "Exp", "Reciprocal"))
KEEPS_NOTHING = frozenset(("Add", "Sub", "Sum", "Mean", "Neg", "GlobalAveragePool", "ReduceMean", "ReduceSum"))
INDEX_BYTES = 8


@dataclass
class Step:
    """Forward and backward operators, in order, and the memory they need."""

    forward: list[Op] = field(default_factory=list)
    backward: list[Op] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    saved_bytes: float = 0.0
    peak_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class _Ran:
    """An operator that has run: its node and what it has saved."""

    node: Node
    op: Op
    saves: dict[str, float]


class StepMaker:
    """Walks over the nodes once forward and, if the model is trained, once backward."""

    def __init__(self, precision: Precision, trains: bool, scale: float = 1.0, file_batch: int = 0) -> None:
        self._precision, self._trains = precision, trains
        self._scale, self._file_batch = scale, file_batch
        """The batch of the spec over that of the file."""
        self._width: dict[str, int] = {}
        """Bytes per element of tensors that mixed precision stores in another type than the file."""
        self._alias: dict[str, str] = {}
        self._learns: set[str] = set()
        """Tensors that have a gradient."""
        self._unused: dict[str, int] = {}
        self._saved: set[str] = set()
        self._given: set[str] = set()
        self._ran: list[_Ran] = []

    def step(self, nodes: Sequence[Node], parameters: Iterable[Value], inputs: Iterable[Value] = ()) -> Step:
        """The step of the nodes of a file, given what is trained and what exists before the step."""
        self._given = {each.name for each in inputs}
        learned = list(parameters)
        self._unused = {each.name: each.elements for each in learned}
        self._learns = {each.name for each in learned} if self._trains else set()
        made = Step()
        for node in nodes:
            self._run(node, made)
        made.forward = [ran.op for ran in self._ran]
        made.saved_bytes = float(sum(sum(ran.saves.values()) for ran in self._ran))
        made.peak_bytes = self._forward_peak()
        if self._trains:
            made.peak_bytes = max(made.peak_bytes, self._run_backward(made))
        return made

    # -- forward --------------------------------------------------------------------------------------------------

    def _run(self, node: Node, made: Step) -> None:
        gives_gradient = any(each.name in self._learns for each in node.inputs)
        if gives_gradient:
            self._learns |= {each.name for each in node.outputs if each.is_float}
        if node.operator in FREE:
            self._alias_output(node)
            return
        kind, flops, detail = cost(node) or self._guess(node, made)
        self._set_width(node, kind)
        reads = self._reads(node, kind)
        saves = self._saves(node, kind) if gives_gradient else {}
        out = node.outputs[0].shape if node.outputs else ()
        self._ran.append(
            _Ran(
                node,
                Op(
                    kind, Phase.FORWARD, f"onnx.{node.operator}", node.name, flops * self._scale, reads,
                    sum(self._bytes(each) for each in node.outputs), self._scaled_shape(out),
                    saved_bytes=float(sum(saves.values())), parameters=self._first_uses(node),
                    dtype=self._dtype(node.outputs), detail=self._scaled_detail(kind, detail),
                ),
                saves,
            )
        )  # fmt: skip

    def _guess(self, node: Node, made: Step) -> tuple[Kind, float, dict[str, Any]]:
        made.unknown[f"onnx.{node.operator}"] += 1
        return Kind.OTHER, float(node.elements), {}

    def _alias_output(self, node: Node) -> None:
        """A view in another shape is the same memory."""
        if node.inputs and node.operator not in ("Shape", "Size"):
            given = node.inputs[0]
            for each in node.outputs:
                self._alias[each.name] = self._root(given)
                self._width[each.name] = self._width.get(given.name, given.width_bytes)
                self._unused[each.name] = self._unused.pop(given.name, 0)

    def _set_width(self, node: Node, kind: Kind) -> None:
        """In mixed precision products return 16 bits, a few operators 32, and the rest the width of their inputs."""
        if not self._precision.is_mixed:
            return
        decide = node.inputs[:1] if kind is Kind.NORM else node.inputs
        given = [self._width.get(each.name, each.width_bytes) for each in decide
                 if each.is_float and not each.is_fixed]  # fmt: skip
        width = 2 if kind in PRODUCTS else 4 if node.operator in IN_FP32 else max(given, default=4)
        self._width |= {each.name: width for each in node.outputs if each.is_float}

    def _reads(self, node: Node, kind: Kind) -> float:
        """Products read 16 bits in mixed precision; a look-up reads only the rows that it returns."""
        halved = self._precision.is_mixed and kind in PRODUCTS
        sizes = [self._bytes(each, 2 if halved and each.is_float else None) for each in node.inputs]
        if kind is Kind.EMBEDDING and node.operator.startswith("Gather") and node.outputs:
            sizes[0] = min(sizes[0], self._bytes(node.outputs[0]))
        return sum(sizes)

    def _first_uses(self, node: Node) -> int:
        used = sum(self._unused.pop(each.name, 0) for each in node.inputs)
        if used and node.outputs and node.outputs[0].is_weight:  # a parameter in another shape: counted where used
            self._unused[node.outputs[0].name] = used
            return 0
        return used

    def _saves(self, node: Node, kind: Kind) -> dict[str, float]:
        """What the backward pass needs, by tensor: each is saved once."""
        kept: dict[str, float] = {}
        for each in self._kept(node, kind):
            root = self._root(each)
            if not each.is_fixed and root not in self._saved:
                width = 2 if self._precision.is_mixed and kind in PRODUCTS and each.is_float else None
                kept[root] = self._bytes(each, width)
                self._saved.add(root)
        if node.operator == "MaxPool":
            kept[f"{node.name}: where each maximum was"] = INDEX_BYTES * node.outputs[0].elements * self._scale
        return kept

    def _kept(self, node: Node, kind: Kind) -> Sequence[Value]:
        if node.operator in KEEPS_NOTHING or kind is Kind.COPY:
            return ()
        if node.operator in KEEPS_OUTPUT:
            return node.outputs[:1]
        if kind in (Kind.CONV, Kind.LINEAR, Kind.MATMUL) or node.operator in ("Mul", "Div"):
            first, *others = node.inputs
            partners = [(first, others), *((each, [first]) for each in others)]
            return [each for each, other in partners if any(one.name in self._learns for one in other)]
        if kind is Kind.EMBEDDING:
            return [each for each in node.inputs if not each.is_float]
        return [each for each in node.inputs if each.is_float]

    # -- backward -------------------------------------------------------------------------------------------------

    def _run_backward(self, made: Step) -> float:
        """Adds the backward pass; returns the most that is live in it: what is saved, and gradients."""
        live = peak = sum(map(self._saved_new, self._ran))
        gradients: dict[str, float] = {}
        for ran in reversed(self._ran):
            wanted = {each.name: each for each in ran.node.inputs if each.name in self._learns}
            if not wanted:
                continue
            for each in wanted.values():
                root = each.name if each.is_weight else self._root(each)
                if root not in gradients:
                    gradients[root] = self._bytes(each, each.width_bytes if each.is_weight else None)
                    live += gradients[root]
            peak = max(peak, live)
            live -= sum(gradients.pop(self._root(each), 0.0) for each in ran.node.outputs) + self._saved_new(ran)
            op = self._gradient(ran, list(wanted.values()))
            if op is not None:
                made.backward.append(op)
        return peak

    def _saved_new(self, ran: _Ran) -> float:
        """What is saved beside inputs, which exist anyway; a cast of one is new."""
        known = set() if self._precision.is_mixed and ran.op.kind in PRODUCTS else self._given
        return sum(size for name, size in ran.saves.items() if name not in known)

    def _gradient(self, ran: _Ran, wanted: list[Value]) -> Op | None:
        """The gradients of an operator; the gradient of a sum is passed on unchanged."""
        op, out = ran.op, ran.node.outputs[0]
        if ran.node.operator in ("Add", "Sub", "Sum") and all(each.shape == out.shape for each in wanted):
            return None
        written = sum(self._bytes(each) for each in wanted)
        return Op(
            op.kind, Phase.BACKWARD, f"{op.operator}.backward", op.layer, op.flops * _times(ran, wanted),
            op.write_bytes + op.read_bytes, written, op.output, dtype=op.dtype, detail=op.detail,
        )  # fmt: skip

    def _forward_peak(self) -> float:
        """The most that is live in the forward pass: what is saved, and what is still to be read."""
        last = {self._root(each): number for number, ran in enumerate(self._ran) for each in ran.node.inputs}
        live = peak = 0.0
        sizes: dict[str, float] = {}
        for number, ran in enumerate(self._ran):
            for each in ran.node.outputs:
                sizes[each.name] = self._bytes(each)
                live += sizes[each.name]
            peak = max(peak, live)
            for each in (*ran.node.inputs, *ran.node.outputs):
                root = self._root(each)
                if last.get(root, number) <= number and root not in self._saved:
                    live -= sizes.pop(root, 0.0)
        return peak

    # -- tensors --------------------------------------------------------------------------------------------------

    def _root(self, value: Value) -> str:
        return self._alias.get(value.name, value.name)

    def _bytes(self, value: Value, width: int | None = None) -> float:
        width = width or self._width.get(value.name, value.width_bytes)
        return float(value.elements * width) * (1.0 if value.is_fixed else self._scale)

    def _dtype(self, outputs: Sequence[Value]) -> str:
        if not outputs:
            return ""
        width = self._width.get(outputs[0].name, outputs[0].width_bytes)
        if not outputs[0].is_float:
            return f"int{8 * width}" if width > 1 else "bool"
        half = "bfloat16" if self._precision is Precision.BF16 else "float16"
        return half if width == 2 else f"float{8 * width}"

    def _scaled_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._scale == 1.0 or not shape or shape[0] % self._file_batch:
            return shape
        return (round(shape[0] * self._scale), *shape[1:])

    def _scaled_detail(self, kind: Kind, detail: dict[str, Any]) -> dict[str, Any]:
        name = {Kind.LINEAR: "m", Kind.MATMUL: "count", Kind.ATTENTION: "count"}.get(kind)
        return detail if name is None else detail | {name: round(detail[name] * self._scale)}


def _times(ran: _Ran, wanted: list[Value]) -> float:
    """The work relative to the forward pass: one product for each operand that has a gradient."""
    kind, node = ran.op.kind, ran.node
    names = {each.name for each in wanted}
    if kind is Kind.ATTENTION:
        return 2.5  # the scores are computed again, then four gradients
    if kind in PRODUCTS and "hidden" in ran.op.detail:  # weights, states, and inputs if wanted
        through = ran.op.detail["hidden"] / ran.op.detail["k"]
        return 2.0 if node.inputs[0].name in names else 1.0 + through
    if kind in PRODUCTS:
        return float(sum(each.name in names for each in node.inputs[:2]))
    return 1.6 if kind is Kind.NORM else 1.0
