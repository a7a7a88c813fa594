"""Reads an ONNX file as a graph; nothing is run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwise.graph.onnx.formulas import FORMULAS, FREE, Node, Shape, Value
from gpuwise.graph.onnx.shapes import is_float, shapes_of, width_of, with_shapes
from gpuwise.graph.onnx.training_step import StepMaker
from gpuwise.graph.ops import Graph, GraphError, Kind, Optimizer, update_ops

if TYPE_CHECKING:
    from gpuwise.graph.models.by_name import ModelSpec

IMAGE, SEQUENCE = 224, 128


def read_onnx(path: Path, spec: ModelSpec) -> Graph:
    """The graph of an ONNX file, with its free first dimension set to the batch."""
    model = _load(path)
    batch = _set_batch(model.graph, spec)
    try:
        contents = _contents(with_shapes(model))
        trains = spec.optimizer is not Optimizer.NONE
        step = StepMaker(spec.precision, trains, batch.scale, batch.in_file).step(*contents.of_step)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise GraphError(f"{path}: an ONNX file that is damaged ({type(error).__name__}: {error})") from error
    parameters = sum(each.elements for each in contents.parameters)
    inputs = [replace(each, shape=_scaled(each.shape, batch)) for each in contents.inputs]
    return Graph(
        model=str(path), batch=spec.batch, precision=spec.precision, optimizer=spec.optimizer,
        ops=(*step.forward, *step.backward, *update_ops(spec.optimizer, parameters, _bytes(contents.parameters))),
        parameters=parameters, parameter_bytes=_bytes(contents.parameters), buffer_bytes=_bytes(contents.buffers),
        input_bytes=_bytes(inputs), input_shape=inputs[0].shape if inputs else (),
        peak_bytes=step.peak_bytes, saved_bytes=step.saved_bytes, unknown=dict(step.unknown),
        notes=("from ONNX: the backward pass and its memory are derived from the forward pass", *batch.notes),
        trainable_parameters=parameters, trainable_bytes=_bytes(contents.parameters),
    )  # fmt: skip


def _bytes(values: list[Value]) -> float:
    return float(sum(each.elements * each.width_bytes for each in values))


# -- reading ----------------------------------------------------------------------------------------------------------


def _load(path: Path) -> Any:
    if importlib.util.find_spec("onnx") is None:
        raise GraphError(
            "ONNX files are read with the package onnx, which is not installed; pip install 'gpuwise[onnx]'"
        )
    import onnx
    import onnx.inliner
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise GraphError(f"there is no file {path}")
    try:
        # Shapes are enough, and paths in it are not followed.
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise GraphError(f"{path}: not an ONNX file, or a damaged one ({type(error).__name__}: {error})") from error
    if not model.graph.node:
        raise GraphError(f"{path}: an ONNX file without operators, or a damaged one")
    try:
        return onnx.inliner.inline_local_functions(model) if model.functions else model
    except Exception as error:
        raise GraphError(f"{path}: its functions cannot be inlined ({type(error).__name__})") from error


# -- the batch --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    """How the batch of the file becomes that of the spec."""

    scale: float = 1.0
    in_file: int = 0
    notes: tuple[str, ...] = ()


def _set_batch(graph: Any, spec: ModelSpec) -> _Batch:
    """Sets free dimensions; where the file fixes its batch, costs are scaled, as shapes inside may be fixed too."""
    weights = {each.name for each in graph.initializer}
    given = [each for each in graph.input if each.name not in weights and each.type.tensor_type.shape.dim]
    fixed = next((each.type.tensor_type.shape.dim[0].dim_value for each in given), 0)
    if any(_is_free(each.type.tensor_type.shape.dim[0]) for each in given):
        fixed = 0
    notes = [note for each in given for note in _set_free(each, spec)]
    if fixed > 0 and fixed != spec.batch:
        notes.append(f"the file fixes its batch at {fixed}: costs and memory are scaled to {spec.batch}")
    del graph.value_info[:]  # it may be of another batch
    for result in graph.output:
        result.type.Clear()
    return _Batch(spec.batch / fixed if fixed > 0 else 1.0, fixed, tuple(notes))


def _is_free(dimension: Any) -> bool:
    return bool(dimension.dim_param) or dimension.dim_value <= 0


def _set_free(given: Any, spec: ModelSpec) -> Iterator[str]:
    """The first dimension is the batch, the second of whole numbers a sequence, the last two of four an image."""
    tensor = given.type.tensor_type
    sizes = tensor.shape.dim
    for position, size in enumerate(sizes):
        if not _is_free(size):
            continue
        chosen = 1
        if position == 0:
            chosen = spec.batch
        elif position == 1 and not is_float(tensor.elem_type):
            chosen = spec.sequence or SEQUENCE
        elif len(sizes) == 4 and position >= 2:
            chosen = spec.image or IMAGE
        if position:
            yield f"the free dimension {size.dim_param or position} of input {given.name} is set to {chosen}"
        size.Clear()
        size.dim_value = chosen


def _scaled(shape: Shape, batch: _Batch) -> Shape:
    if batch.scale == 1.0 or not shape or shape[0] != batch.in_file:
        return shape
    return (round(shape[0] * batch.scale), *shape[1:])


# -- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Contents:
    """The nodes and tensors of a file."""

    nodes: list[Node]
    parameters: list[Value]
    buffers: list[Value]
    inputs: list[Value]

    @property
    def of_step(self) -> tuple[list[Node], list[Value], list[Value]]:
        """The arguments of a step."""
        return self.nodes, self.parameters, self.inputs


def _contents(graph: Any) -> _Contents:
    tensors = _Tensors(graph)
    nodes = [tensors.node(number, node) for number, node in enumerate(graph.node) if node.op_type != "Constant"]
    initial = {each.name for each in graph.initializer}
    return _Contents(
        nodes,
        [tensors.value(name) for name in tensors.stored if name in tensors.learned],
        [tensors.value(name) for name in tensors.stored if name in tensors.statistics],
        [tensors.value(each.name) for each in graph.input if each.name not in initial],
    )


class _Tensors:
    """The tensors of a file by name: their shapes, and which are stored, learned or statistics of batches."""

    def __init__(self, graph: Any) -> None:
        self.shapes = shapes_of(graph)
        self.stored = {name: self.shapes[name] for name in _stored(graph)}
        norms = [node for node in graph.node if node.op_type == "BatchNormalization"]
        self.statistics = {name for node in norms for name in list(node.input)[3:5]}
        used = {name for node in graph.node for name in node.input}
        floats = {name for name, (shape, kind) in self.stored.items() if is_float(kind) and shape and prod(shape) > 1}
        self.learned = (floats & used) - self.statistics
        self.weights = set(self.learned)
        """Parameters, also in another shape, order or type."""

    def value(self, name: str) -> Value:
        """A tensor with what is known of it so far."""
        shape, kind = self.shapes[name]
        return Value(name, shape, is_float(kind), width_of(kind), name in self.weights, name in self.stored)

    def node(self, number: int, node: Any) -> Node:
        """A node with its tensors; nodes are taken in order."""
        if missing := [name for name in (*node.output, *node.input) if name and name not in self.shapes]:
            seen = ", ".join(str(self.shapes[name][0]) for name in node.input if name in self.shapes) or "nothing"
            where = f"at {node.op_type} {node.name!r}, of {seen}"
            raise GraphError(f"the shape of {missing[0]!r} ({where}) cannot be inferred")
        if _only_moves(node, self.weights, self.stored):
            self.weights |= set(node.output)
        return Node(
            operator=node.op_type,
            name=node.name or f"{node.op_type.lower()}_{number}",
            inputs=[self.value(name) for name in node.input if name],
            outputs=[self.value(name) for name in node.output if name],
            attributes={each.name: _attribute(each) for each in node.attribute},
        )


def _stored(graph: Any) -> list[str]:
    """The names of tensors whose values are in the file."""
    constants = [node.output[0] for node in graph.node if node.op_type == "Constant" and node.output]
    return [*(each.name for each in graph.initializer), *constants]


def _only_moves(node: Any, weights: set[str], stored: dict[str, Any]) -> bool:
    """Whether a node only changes the shape, order or type of a parameter."""
    moves = node.op_type in FREE or (node.op_type in FORMULAS and FORMULAS[node.op_type][0] is Kind.COPY)
    moves = moves or node.op_type == "DequantizeLinear"
    given = [name for name in node.input if name]
    return moves and any(name in weights for name in given) and all(name in weights or name in stored for name in given)


def _attribute(attribute: Any) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    return list(value) if isinstance(attribute.ints, type(value)) else value
