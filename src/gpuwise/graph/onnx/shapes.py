"""The shapes of all tensors of an ONNX file: inferred, and where the file computes them, evaluated."""

from __future__ import annotations

from math import prod
from typing import Any

from gpuwise.graph.onnx.formulas import Shape
from gpuwise.graph.ops import GraphError

CONTROL = ("If", "Loop", "Scan", "SequenceMap")
LARGE_BYTES = 1 << 16
SMALL = 1024
"""Elements of a tensor that may be a shape, or part of one."""


def with_shapes(model: Any) -> Any:
    """The graph with the shapes of its tensors, as far as they can be inferred."""
    _refuse_control_flow(model.graph)
    _leave_out_weights(model.graph)
    graph = _inferred(model)
    while _unshaped(graph) and _fold(model, graph):
        graph = _inferred(model)
    return graph


def _inferred(model: Any) -> Any:
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise GraphError(f"its shapes cannot be inferred ({lines[0]})") from error


def _refuse_control_flow(graph: Any) -> None:
    for node in graph.node:
        if node.op_type in CONTROL:
            raise GraphError(
                f"{node.op_type} {node.name!r} is control flow that depends on data, which a graph does not have; "
                "export the model without it"
            )


def _leave_out_weights(graph: Any) -> None:
    """Drops the values of large weights: shapes do not need them, and they make inference slow."""
    for each in graph.initializer:
        if len(each.raw_data) > LARGE_BYTES and is_float(each.data_type):
            each.ClearField("raw_data")


def _dimensions(value: Any) -> Shape | None:
    """The shape of a tensor; None if a part of it is not known."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or any(_is_unknown(each) for each in tensor.shape.dim):
        return None
    return tuple(each.dim_value for each in tensor.shape.dim)


def _is_unknown(dimension: Any) -> bool:
    return bool(dimension.dim_param) or not dimension.HasField("dim_value") or dimension.dim_value < 0


def shapes_of(graph: Any) -> dict[str, tuple[Shape, int]]:
    """Shape and type of each tensor whose shape is known."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shape = _dimensions(value)
        if shape is not None:
            found[value.name] = shape, value.type.tensor_type.elem_type
    return found | {each.name: (tuple(each.dims), each.data_type) for each in graph.initializer}


def _unshaped(graph: Any) -> bool:
    known = shapes_of(graph)
    return any(name and name not in known for node in graph.node for name in node.output)


def _fold(model: Any, graph: Any) -> bool:
    """Evaluates small integer tensors (shapes that the file computes) and makes them constants."""
    import numpy as np
    import onnx

    known = shapes_of(graph)
    values = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer
              if not is_float(each.data_type) and prod(each.dims) <= SMALL}  # fmt: skip
    kept, folded = [], False
    for node in model.graph.node:
        results = None
        if node.op_type == "Shape" and not node.attribute and node.input[0] in known:
            results = [np.array(known[node.input[0]][0], dtype=np.int64)]
        elif node.op_type == "Constant" or (node.input and all(name in values for name in node.input if name)):
            results = _evaluated(node, values, model.opset_import)
        if results is None or any(each.size > SMALL for each in results):
            kept.append(node)
            continue
        values |= dict(zip(node.output, results, strict=False))
        made = [onnx.numpy_helper.from_array(each, name) for name, each in zip(node.output, results, strict=False)]
        model.graph.initializer.extend(made)
        folded = True
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return folded


def _evaluated(node: Any, values: dict[str, Any], opsets: Any) -> list[Any] | None:
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

    names = dict.fromkeys(name for name in node.input if name)
    anything = onnx.TypeProto()
    given = [onnx.helper.make_value_info(name, anything) for name in names]
    out = [onnx.helper.make_value_info(name, anything) for name in node.output]
    alone = onnx.helper.make_model(onnx.helper.make_graph([node], "one", given, out), opset_imports=list(opsets))
    try:
        made = ReferenceEvaluator(alone).run(None, {name: values[name] for name in names})
    except Exception:  # not in the reference implementation, or with inputs that are missing here
        return None
    return [np.asarray(each) for each in made]


def is_float(kind: int) -> bool:
    """Whether a type of ONNX is of floating point numbers: float, float16, double, bfloat16, or of 8 bits."""
    return kind in (1, 10, 11, 16, 17, 18, 19, 20)


def width_of(kind: int) -> int:
    """Bytes of an element of a type of ONNX."""
    import onnx

    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
    except (KeyError, TypeError, ValueError):
        return 4
