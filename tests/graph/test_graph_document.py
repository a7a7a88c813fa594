"""Graphs as documents."""

from __future__ import annotations

import json
import math

import pytest

from gpuwise.graph.ops import Graph, GraphError, Kind, Op, Optimizer, Phase, Precision

CONV = Op(
    Kind.CONV, Phase.FORWARD, "aten.convolution", "features.0", 1e9, 10.0, 20.0, (2, 8, 4, 4), 30.0, 216, "float16",
    {"kernel": [3, 3], "groups": 1, "channels_in": 3},
)  # fmt: skip
GRAPH = Graph(
    "model", 2, Precision.FP16, Optimizer.ADAM, (CONV,), 216, 864.0, 8.0, 24.0, (2, 3, 4, 4), 99.0, 30.0,
    {"aten.new": 2}, ("a note",), 100, 400.0,
)  # fmt: skip


def test_a_graph_comes_back_as_it_was() -> None:
    again = Graph.from_json(GRAPH.to_json())
    assert again == GRAPH
    assert isinstance(again.ops[0].kind, Kind)
    assert again.ops[0].output == (2, 8, 4, 4)


def test_a_document_from_before_frozen_parameters_were_told_apart_means_all_are_trained() -> None:
    document = json.loads(GRAPH.to_json())
    del document["trainable_parameters"], document["trainable_bytes"]
    graph = Graph.from_json(json.dumps(document))
    assert graph.gradient_bytes == graph.parameter_bytes
    assert graph.optimizer_bytes == 2 * graph.parameter_bytes


def change(**entries: object) -> str:
    return json.dumps(json.loads(GRAPH.to_json()) | entries)


def change_op(column: str, value: object) -> str:
    document = json.loads(GRAPH.to_json())
    document["ops"][0][document["columns"].index(column)] = value
    return json.dumps(document)


DAMAGED = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "a number": "7",
    "null": "null",
    "another thing": "{}",
    "half": GRAPH.to_json()[: len(GRAPH.to_json()) // 2],
    "a precision that is none": change(precision="fp3"),
    "a batch of letters": change(batch="two"),
    "bytes that are negative": change(saved_bytes=-1.0),
    "bytes without end": change(peak_bytes=math.inf),
    "bytes that are no number": change(peak_bytes=math.nan),
    "nothing for parameters": change(parameters=None),
    "unknown of another kind": change(unknown=3),
    "a field too many": change(weights=[1.0]),
    "rows too short": change(ops=[["conv"]]),
    "rows that are none": change(ops=7),
    "a kind that is none": change_op("kind", "magic"),
    "FLOPs of letters": change_op("flops", "many"),
    "a shape that is a number": change_op("output", 3),
    "brackets without end": "[" * 100_000,
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_document_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="not a graph that gpuwise has written, or a damaged one"):
        Graph.from_json(text)


def test_a_document_of_another_version_says_so() -> None:
    with pytest.raises(GraphError, match="another version of gpuwise; trace the model again"):
        Graph.from_json(change(gpuwise_graph=99))


def test_operators_are_chosen_by_phase_and_kind() -> None:
    assert list(GRAPH.of(Phase.FORWARD, Kind.CONV)) == [CONV]
    assert not list(GRAPH.of(Phase.BACKWARD))
    assert GRAPH.flops == 1e9
    assert GRAPH.bytes == 30.0
    assert GRAPH.forward_macs == 5e8
