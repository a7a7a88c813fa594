"""ONNX files: read, not run, and compared with the trace of the same network."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX files are read with the package onnx, which is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper

from gpuwise.graph.layers import LayerKind, layers
from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.ops import PRODUCTS, Graph, GraphError, Kind, Op, Optimizer, Phase, Precision

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def weight(name: str, *shape: int, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.zeros(shape, dtype), name)


def numbers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def given(name: str, *shape: int | str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def ask(tmp_path: Path):
    """Writes a file with some nodes, and reads it."""

    def asked(
        nodes: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any] = (), batch: int = 4, opset: int = 17,
        **how: Any,
    ) -> Graph:  # fmt: skip
        path = tmp_path / "model.onnx"
        out = [helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)]
        graph = helper.make_graph(nodes, "graph", inputs, out, list(weights))
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
        return graph_of(ModelSpec(str(path), batch, **how))

    return asked


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), output.split(), name=f"the_{output.split()[0]}", **attributes)


def one(graph: Graph, operator: str, phase: Phase = Phase.FORWARD) -> Op:
    (op,) = (op for op in graph.of(phase) if op.operator.removesuffix(".backward") == f"onnx.{operator}")
    return op


# -- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "filters", "attributes", "macs", "plane"),
    [
        ("Conv", (16, 8, 3, 3), {"pads": [1, 1, 1, 1]}, 4 * 16 * 100 * 9 * 8, (10, 10)),
        ("Conv", (16, 2, 3, 3), {"pads": [1, 1, 1, 1], "group": 4}, 4 * 16 * 100 * 9 * 2, (10, 10)),
        ("Conv", (8, 1, 3, 3), {"group": 8, "strides": [2, 2], "pads": [1] * 4}, 4 * 8 * 25 * 9, (5, 5)),
        ("Conv", (16, 8, 3, 3), {"dilations": [2, 2]}, 4 * 16 * 36 * 9 * 8, (6, 6)),
        ("ConvTranspose", (8, 16, 2, 2), {"strides": [2, 2]}, 4 * 8 * 100 * 16 * 4, (20, 20)),
    ],
    ids=["plain", "grouped", "depthwise", "dilated", "transposed"],
)
def test_convolutions_cost_what_they_cost_in_pytorch(ask, operator, filters, attributes, macs, plane) -> None:
    graph = ask([node(operator, "x w", "y", **attributes)], [given("x", "N", 8, 10, 10)], [weight("w", *filters)])
    op = one(graph, operator)
    assert (op.kind, op.macs, op.output[2:]) == (Kind.CONV, macs, plane)
    assert one(graph, operator, Phase.BACKWARD).macs == macs  # of its weights only: it is the first layer
    assert op.is_depthwise == (attributes.get("group") == 8)
    assert graph.parameters == op.parameters == np.prod(filters)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_a_general_product_is_read_with_either_side_turned(ask, first: int, second: int) -> None:
    # The batch is the first dimension of the file's input; turned, it is what is summed over.
    shape = ("N", 4) if not first else (4, "N")
    rows, inner = 4, 4
    weights = weight("w", 6, inner) if second else weight("w", inner, 6)
    inputs = [given("x", *shape)] if not first else [given("x", 4, 4)]
    graph = ask([node("Gemm", "x w", "y", transA=first, transB=second)], inputs, [weights])
    op = one(graph, "Gemm")
    assert (op.kind, op.macs) == (Kind.LINEAR, rows * inner * 6)
    assert op.detail == {"m": 4, "k": 4, "n": 6, "count": 1}


def test_a_product_with_a_weight_is_a_linear_layer_and_one_of_activations_is_not(ask) -> None:
    nodes = [node("MatMul", "x w", "h"), node("Transpose", "h", "t", perm=[0, 2, 1]), node("MatMul", "h t", "y")]
    graph = ask(nodes, [given("x", "N", 5, 8)], [weight("w", 8, 6)])
    linear, product = (op for op in graph.of(Phase.FORWARD) if op.kind in PRODUCTS)
    assert (linear.kind, linear.macs, linear.detail["m"]) == (Kind.LINEAR, 4 * 5 * 8 * 6, 20)
    assert (product.kind, product.macs) == (Kind.MATMUL, 4 * 5 * 6 * 5)
    assert product.detail == {"m": 5, "k": 6, "n": 5, "count": 4}
    assert one_of(graph, product.layer).macs == 2 * product.macs
    assert [layer.kind for layer in layers(graph)] == [LayerKind.FC]
    assert layers(graph)[0].forward() == 5 * 8 * 6


def one_of(graph: Graph, layer: str) -> Op:
    (op,) = (op for op in graph.of(Phase.BACKWARD) if op.layer == layer)
    return op


def test_a_weight_that_is_turned_first_is_a_weight_still(ask) -> None:
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")]
    graph = ask(nodes, [given("x", "N", 8)], [weight("w", 6, 8)])
    op = one(graph, "MatMul")
    assert (op.kind, op.parameters) == (Kind.LINEAR, 48)
    assert graph.parameters == 48


def test_an_einsum_costs_all_its_indices(ask) -> None:
    graph = ask([node("Einsum", "x w", "y", equation="bij,jk->bik")], [given("x", "N", 5, 8)], [weight("w", 8, 6)])
    assert one(graph, "Einsum").macs == 4 * 5 * 8 * 6


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_are_the_sum_of_their_linear_parts(ask, operator: str, gates: int, directions: int) -> None:
    weights = [weight("w", directions, gates * 20, 10), weight("r", directions, gates * 20, 20)]
    way = {"direction": "bidirectional"} if directions == 2 else {}
    graph = ask([node(operator, "x w r", "y", hidden_size=20, **way)], [given("x", 7, 3, 10)], weights, batch=7)
    op = one(graph, operator)
    assert (op.kind, op.macs) == (Kind.LINEAR, 7 * 3 * directions * gates * 20 * (10 + 20))
    # Weights as often as forward, states as often as forward, and no gradient of the input.
    assert one(graph, operator, Phase.BACKWARD).macs == pytest.approx(op.macs * (1 + 20 / 30))


def attention_nodes() -> list[Any]:
    return [
        node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "s"), node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]  # fmt: skip


def test_attention_by_products_costs_what_it_costs_fused(ask) -> None:
    weights = [weight(name, 8, 8) for name in ("wq", "wk", "wv")]
    graph = ask(attention_nodes(), [given("x", "N", 16, 8)], weights)
    products = [op.macs for op in graph.of(Phase.FORWARD, Kind.MATMUL)]
    assert products == [4 * 16 * 16 * 8] * 2
    fused = ask([*attention_nodes()[:3], node("Attention", "q k v", "y", q_num_heads=2, kv_num_heads=2)],
                [given("x", "N", 16, 8)], weights, opset=23)  # fmt: skip
    assert one(fused, "Attention").macs == sum(products)
    assert one(fused, "Attention", Phase.BACKWARD).macs == 2.5 * sum(products)


# -- against the trace ------------------------------------------------------------------------------------------------


def convolutions() -> tuple[list[Any], list[Any]]:
    nodes = [
        node("Conv", "x w1", "c1", strides=[2, 2], pads=[1] * 4), node("BatchNormalization", "c1 g b m v", "n1"),
        node("Relu", "n1", "r1"), node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p1 w2", "c2", pads=[1] * 4, group=4), node("Relu", "c2", "r2"),
        node("GlobalAveragePool", "r2", "gap"), node("Flatten", "gap", "f"), node("Gemm", "f w3 b3", "y", transB=1),
    ]  # fmt: skip
    weights = [weight("w1", 16, 3, 3, 3), *(weight(name, 16) for name in "gbmv"), weight("w2", 32, 4, 3, 3),
               weight("w3", 10, 32), weight("b3", 10)]  # fmt: skip
    return nodes, weights


@pytest.mark.parametrize("precision", Precision)
def test_a_file_and_the_trace_of_the_same_network_agree(ask, precision: Precision) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch import nn
    from tracing import traced

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, groups=4, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(32, 10),
        )  # fmt: skip

    nodes, weights = convolutions()
    read = ask(nodes, [given("x", "N", 3, 32, 32)], weights, batch=8, precision=precision)
    trace = traced(make, (8, 3, 32, 32), precision=precision)
    assert read.parameters == trace.parameters == sum(op.parameters for op in read.ops)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        products = [{op.macs for op in graph.of(phase) if op.kind is Kind.CONV} for graph in (read, trace)]
        assert products[0] == products[1]
        norms = [[op.flops for op in graph.of(phase, Kind.NORM)] for graph in (read, trace)]
        assert norms[0] == norms[1]
    for kind in (Kind.CONV, Kind.LINEAR, Kind.ACTIVATION):
        moved = [[op.bytes for op in graph.of(Phase.FORWARD, kind)] for graph in (read, trace)]
        assert moved[0] == moved[1]
    assert read.flops == pytest.approx(trace.flops, rel=0.01)
    assert read.saved_bytes == pytest.approx(trace.saved_bytes, rel=0.03)
    assert read.peak_bytes == pytest.approx(trace.peak_bytes, rel=0.05)
    assert (read.input_bytes, read.input_shape) == (trace.input_bytes, trace.input_shape)
    assert [layer for layer in layers(trace) if layer.kind is not LayerKind.LOSS] == layers(read)


def test_mixed_precision_halves_the_bytes_of_products(ask) -> None:
    nodes, weights = convolutions()
    inputs = [given("x", "N", 3, 32, 32)]
    full, mixed = (ask(nodes, inputs, weights, precision=each) for each in (Precision.FP32, Precision.BF16))
    for kind in (Kind.CONV, Kind.LINEAR):
        halves = [op.bytes for op in mixed.of(Phase.FORWARD, kind)]
        assert [2 * each for each in halves] == [op.bytes for op in full.of(Phase.FORWARD, kind)]
        assert {op.dtype for op in mixed.of(Phase.FORWARD, kind)} == {"bfloat16"}
    assert mixed.parameter_bytes == full.parameter_bytes
    assert mixed.saved_bytes < 0.6 * full.saved_bytes
    softmax = ask([node("MatMul", "x w", "h"), node("Softmax", "h", "y")], [given("x", "N", 8)], [weight("w", 8, 8)],
                  precision=Precision.FP16)  # fmt: skip
    assert one(softmax, "Softmax").dtype == "float32"


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["N", "batch_size", 1, 2, 4, None])
def test_a_batch_that_is_free_is_set_and_one_that_is_fixed_is_scaled(ask, first: int | str | None) -> None:
    nodes, weights = convolutions()
    read = ask(nodes, [given("x", first, 3, 32, 32)], weights)
    wanted = ask(nodes, [given("x", "N", 3, 32, 32)], weights)
    assert read.input_shape == (4, 3, 32, 32)
    assert [(op.flops, op.bytes, op.output, op.detail, op.saved_bytes) for op in read.ops] == [
        (op.flops, op.bytes, op.output, op.detail, op.saved_bytes) for op in wanted.ops
    ]
    assert read.peak_bytes == pytest.approx(wanted.peak_bytes)
    fixed = [note for note in read.notes if "fixes its batch" in note]
    assert bool(fixed) == (first in (1, 2))


def test_a_batch_that_is_fixed_inside_the_file_is_no_trap(ask) -> None:
    nodes = [node("Reshape", "x shape", "f"), node("MatMul", "f w", "y")]
    graph = ask(nodes, [given("x", 1, 4, 8)], [numbers("shape", 1, 32), weight("w", 32, 6)])
    assert graph.forward_macs == 4 * 32 * 6
    assert one(graph, "MatMul").output == (4, 6)


def test_free_sequences_and_images_get_a_usual_size_and_a_note(ask) -> None:
    tokens = ask([node("Gather", "w ids", "h"), node("MatMul", "h v", "y")], [given("ids", "N", "T", kind=INT64)],
                 [weight("w", 100, 8), weight("v", 8, 6)], sequence=10)  # fmt: skip
    assert tokens.input_shape == (4, 10)
    assert tokens.input_bytes == 8 * 40
    assert tokens.forward_macs == 4 * 10 * 8 * 6
    assert "the free dimension T of input ids is set to 10" in tokens.notes
    images = ask([node("Conv", "x w", "y")], [given("x", "N", 3, "H", "W")], [weight("w", 8, 3, 1, 1)], image=20)
    assert images.input_shape == (4, 3, 20, 20)


def test_shapes_that_are_computed_in_the_file_are_worked_out(ask) -> None:
    # x.view(x.shape[0], -1) as exporters write it, with steps that plain shape inference does not follow.
    nodes = [
        node("Shape", "x", "all"), node("Gather", "all zero", "n", axis=0), node("Unsqueeze", "n axes", "n1"),
        node("Where", "yes n1 n1", "n2"), node("Concat", "n2 rest", "shape", axis=0), node("Reshape", "x shape", "f"),
        node("Mul", "n2 n2", "unused"), node("MatMul", "f w", "y"),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(np.array(0, np.int64), "zero"), numbers("axes", 0), numbers("rest", -1),
               numpy_helper.from_array(np.array([True]), "yes"), weight("w", 32, 6)]  # fmt: skip
    graph = ask(nodes, [given("x", "N", 4, 8)], weights)
    assert graph.forward_macs == 4 * 32 * 6
    assert graph.parameters == 32 * 6


# -- opsets and odd files ---------------------------------------------------------------------------------------------

SCALES = numpy_helper.from_array(np.array([1, 2, 2], np.float32), "scales")
OLD_AND_NEW = {
    "Slice by attributes": (9, [node("Slice", "x", "y", axes=[1], starts=[0], ends=[2])], []),
    "Slice by inputs": (17, [node("Slice", "x s e a", "y")], [numbers("s", 0), numbers("e", 2), numbers("a", 1)]),
    "Split by attributes": (11, [node("Split", "x", "y z", axis=1, split=[2, 6])], []),
    "Split by inputs": (17, [node("Split", "x s", "y z", axis=1)], [numbers("s", 2, 6)]),
    "Split by number": (18, [node("Split", "x", "y z", axis=1, num_outputs=2)], []),
    "Clip by attributes": (10, [node("Clip", "x", "y", min=0.0, max=6.0)], []),
    "Clip by inputs": (17, [node("Clip", "x low", "y")], [weight("low")]),
    "Clip with an input left out": (17, [helper.make_node("Clip", ["x", "", "low"], ["y"])], [weight("low")]),
    "Squeeze by attributes": (11, [node("Unsqueeze", "x", "u", axes=[1]), node("Relu", "u", "y")], []),
    "Dropout": (9, [node("Dropout", "x", "y", ratio=0.5)], []),
    "Pad by attributes": (10, [node("Pad", "x", "y", pads=[0, 0, 0, 0, 1, 0])], []),
    "Upsample": (9, [node("Upsample", "x scales", "y")], [SCALES]),
    "ReduceMean by attributes": (13, [node("ReduceMean", "x", "y", axes=[-1])], []),
    "ReduceMean by inputs": (18, [node("ReduceMean", "x a", "y")], [numbers("a", -1)]),
    "Softmax": (11, [node("Softmax", "x", "y")], []),
    "LayerNormalization": (17, [node("LayerNormalization", "x w", "y")], [weight("w", 6)]),
    "Gelu": (20, [node("Gelu", "x", "y")], []),
    "Cast": (17, [node("Cast", "x", "y", to=TensorProto.FLOAT16)], []),
    "TopK": (17, [node("TopK", "x k", "y z")], [numbers("k", 2)]),
    "Constant": (17, [helper.make_node("Constant", [], ["c"], value=weight("", 6)), node("Add", "x c", "y")], []),
}  # fmt: skip


@pytest.mark.parametrize(("opset", "nodes", "weights"), OLD_AND_NEW.values(), ids=OLD_AND_NEW.keys())
def test_operators_of_old_and_new_versions_are_known(ask, opset: int, nodes, weights) -> None:
    graph = ask(nodes, [given("x", "N", 8, 6)], weights, opset=opset)
    assert not graph.unknown
    assert all(op.bytes > 0 for op in graph.ops)


def test_an_operator_without_a_formula_is_counted_and_has_bytes(ask) -> None:
    graph = ask([node("Det", "x", "y")], [given("x", "N", 6, 6)])
    assert graph.unknown == {"onnx.Det": 1}
    op = one(graph, "Det")
    assert (op.kind, op.flops, op.read_bytes, op.write_bytes) == (Kind.OTHER, 144.0, 4 * 144, 4 * 4)


def test_an_embedding_reads_rows_and_weights_used_twice_are_counted_once(ask) -> None:
    nodes = [node("Gather", "w ids", "h"), node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "h t", "y")]
    graph = ask(nodes, [given("ids", "N", 5, kind=INT64)], [weight("w", 1000, 8)])
    assert graph.parameters == 8000 == sum(op.parameters for op in graph.ops)
    assert one(graph, "Gather").read_bytes == 4 * 20 * 8 + 8 * 20


def test_running_means_are_buffers_and_whole_numbers_are_no_parameters(ask) -> None:
    nodes, weights = convolutions()
    graph = ask(nodes, [given("x", "N", 3, 32, 32)], [*weights, numbers("shape", 1, 2, 3)])
    assert graph.buffer_bytes == 4 * 32
    assert graph.parameters == 16 * 27 + 32 + 32 * 36 + 330


def test_a_file_in_16_bits_has_half_the_bytes(ask) -> None:
    inputs = [given("x", "N", 8, kind=TensorProto.FLOAT16)]
    graph = ask([node("MatMul", "x w", "y")], inputs, [weight("w", 8, 6, dtype=np.float16)], optimizer=Optimizer.ADAM)
    assert graph.parameter_bytes == 2 * 48
    assert one(graph, "MatMul").bytes == 2 * (4 * 8 + 48 + 4 * 6)
    assert one(graph, "MatMul").dtype == "float16"


def test_without_an_optimizer_there_is_a_forward_pass_only(ask) -> None:
    nodes, weights = convolutions()
    graph = ask(nodes, [given("x", "N", 3, 32, 32)], weights, optimizer=Optimizer.NONE)
    assert {op.phase for op in graph.ops} == {Phase.FORWARD}
    assert graph.saved_bytes == 0.0
    # The most at once: what goes in and out of the norm or the activation that follows it, 16 planes of 16 × 16 each.
    assert graph.peak_bytes == 2 * 4 * 4 * 16 * 16 * 16


def test_functions_of_the_file_are_put_in_place(tmp_path: Path) -> None:
    own = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("Twice", ["x"], ["h"], domain="own"), node("MatMul", "h w", "y")]
    graph = helper.make_graph(nodes, "graph", [given("x", "N", 8)], [given("y", "N", 6)], [weight("w", 8, 6)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, functions=[own], opset_imports=opsets), tmp_path / "model.onnx")
    read = graph_of(ModelSpec(str(tmp_path / "model.onnx"), 2))
    assert [op.operator for op in read.of(Phase.FORWARD)] == ["onnx.Add", "onnx.MatMul"]


def test_weights_beside_a_file_are_not_looked_for(tmp_path: Path) -> None:
    values = weight("w", 8, 6)
    values.ClearField("raw_data")
    values.data_location = TensorProto.EXTERNAL
    values.external_data.append(onnx.StringStringEntryProto(key="location", value="../../../etc/passwd"))
    graph = helper.make_graph(
        [node("MatMul", "x w", "y")], "graph", [given("x", "N", 8)], [given("y", "N", 6)], [values]
    )
    (tmp_path / "model.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    assert graph_of(ModelSpec(str(tmp_path / "model.onnx"), 2)).parameters == 48


# -- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\x00", b"not an ONNX file", b"\x80\x04]\x94.", bytes(range(256)) * 20])
def test_a_file_that_is_none_or_damaged_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(GraphError, match=r"model\.onnx: .*damaged") as error:
        graph_of(ModelSpec(str(path), 1))
    assert "\n" not in str(error.value)


def test_a_file_that_was_cut_off_anywhere_is_refused_or_read_but_never_breaks(tmp_path: Path) -> None:
    nodes, weights = convolutions()
    graph = helper.make_graph(nodes, "graph", [given("x", "N", 3, 32, 32)], [given("y", "N", 10)], weights)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    path = tmp_path / "model.onnx"
    for size in range(1, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(GraphError):
            graph_of(ModelSpec(str(path), 1))


def test_a_file_with_bytes_changed_anywhere_is_refused_or_read_but_never_breaks(tmp_path: Path) -> None:
    nodes, weights = convolutions()
    graph = helper.make_graph(nodes, "graph", [given("x", "N", 3, 32, 32)], [given("y", "N", 10)], weights)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    path, places = tmp_path / "model.onnx", np.random.default_rng(0).integers(0, 900, 150)
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
        with contextlib.suppress(GraphError):
            graph_of(ModelSpec(str(path), 2))


def branch(name: str) -> Any:
    return helper.make_graph([helper.make_node("Identity", ["x"], [name])], "branch", [], [given(name, "N", 8)])


REFUSED = {
    "control flow": (
        [node("If", "flag", "y", then_branch=branch("a"), else_branch=branch("b"))],
        "If 'the_y' is control flow that depends on data",
    ),
    "a shape that depends on data": (
        [node("NonZero", "x", "i"), node("Transpose", "i", "y")],
        r"the shape of 'i' \(at NonZero 'the_i', of \(4, 8\)\) cannot be inferred",
    ),
    "an unknown operator": (
        [helper.make_node("Magic", ["x"], ["h"], domain="own", name="trick"), node("Relu", "h", "y")],
        "shapes cannot be inferred .*trick.*Magic",
    ),
    "an input that no node makes": ([node("Relu", "nowhere", "y")], "'nowhere'|'y'"),
    "a product that does not fit": (
        [node("Gemm", "x w", "y")],
        r"at Gemm 'the_y', of \(4, 8\), \(9, 6\)\) cannot be inferred",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "cause"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_cannot_be_understood_gets_one_line_that_names_the_cause(ask, nodes, cause: str) -> None:
    inputs = [given("x", "N", 8), given("flag", kind=TensorProto.BOOL)]
    with pytest.raises(GraphError, match=cause) as error:
        ask(nodes, inputs, [weight("w", 9, 6)])
    assert "\n" not in str(error.value)
    assert "model.onnx" in str(error.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(GraphError, match=r"there is no file no/such/model\.onnx"):
        graph_of(ModelSpec("no/such/model.onnx", 1))
