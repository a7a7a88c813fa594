"""Networks whose cost is published."""

from __future__ import annotations

from functools import cache

import pytest
from tracing import product_macs

from gpuwise.graph.features import features
from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.models.libraries import library
from gpuwise.graph.ops import PRODUCTS, Graph, GraphError, Kind, Optimizer, Phase

BATCH = 2


@pytest.fixture(scope="module", autouse=True)
def _torchvision() -> None:
    try:
        library("torchvision")
    except GraphError as error:
        pytest.skip(str(error))


@cache
def network(name: str, batch: int = BATCH, optimizer: Optimizer = Optimizer.MOMENTUM) -> Graph:
    return graph_of(ModelSpec(f"torchvision:{name}", batch, optimizer=optimizer))


PUBLISHED = [
    # name, 10^9 multiply-adds for an image of 224 × 224, parameters
    ("alexnet", 0.71, 61_100_840),
    ("vgg19", 19.6, 143_667_240),
    ("resnet18", 1.81, 11_689_512),
    ("resnet50", 4.09, 25_557_032),
    ("resnet152", 11.5, 60_192_808),
    ("googlenet", 1.50, 6_624_904),
    ("densenet121", 2.83, 7_978_856),
    ("mobilenet_v2", 0.30, 3_504_872),
    ("squeezenet1_0", 0.82, 1_248_424),
    ("shufflenet_v2_x1_0", 0.144, 2_278_604),
    ("mnasnet1_0", 0.31, 4_383_312),
    ("resnext50_32x4d", 4.23, 25_028_904),
]


@pytest.mark.parametrize(("name", "gmacs", "parameters"), PUBLISHED)
def test_forward_products_and_parameters_are_as_published(name: str, gmacs: float, parameters: int) -> None:
    graph = network(name)
    assert graph.forward_macs / BATCH / 1e9 == pytest.approx(gmacs, rel=0.02)
    assert graph.parameters == parameters == sum(op.parameters for op in graph.ops)
    assert graph.input_shape == (BATCH, 3, 224, 224)
    assert not graph.unknown


@pytest.mark.parametrize("name", [name for name, *_ in PUBLISHED])
def test_backward_is_twice_forward_but_for_the_first_layer_whose_input_has_no_gradient(name: str) -> None:
    graph = network(name)
    first = next(op for op in graph.of(Phase.FORWARD) if op.kind in PRODUCTS)
    assert product_macs(graph, Phase.BACKWARD) == pytest.approx(2.0 * graph.forward_macs - first.macs, rel=1e-9)


def test_every_backward_product_is_in_a_layer_that_ran_forward() -> None:
    graph = network("resnet18")
    forward = {op.layer for op in graph.of(Phase.FORWARD) if op.kind in PRODUCTS}
    assert {op.layer for op in graph.of(Phase.BACKWARD) if op.kind in PRODUCTS} == forward
    assert "layer1.0.conv1" in forward
    assert len(forward) == 21  # 20 convolutions (3 of them in shortcuts) and a classifier


def test_without_an_optimizer_there_is_a_forward_pass_only() -> None:
    graph = network("resnet18", optimizer=Optimizer.NONE)
    assert {op.phase for op in graph.ops} == {Phase.FORWARD}
    assert graph.saved_bytes == graph.gradient_bytes == graph.optimizer_bytes == 0.0
    assert graph.forward_macs == network("resnet18").forward_macs
    assert graph.peak_bytes < network("resnet18").peak_bytes


def test_what_depends_on_samples_grows_with_the_batch_and_the_rest_does_not() -> None:
    two, eight = network("resnet18"), network("resnet18", 8)
    assert eight.forward_macs == 4.0 * two.forward_macs
    assert eight.saved_bytes == pytest.approx(4.0 * two.saved_bytes, rel=1e-3)  # batch norm keeps a mean per channel
    assert (eight.parameters, eight.parameter_bytes) == (two.parameters, two.parameter_bytes)
    assert len(eight.ops) == len(two.ops)


def test_the_counter_of_batch_norm_weighs_nothing() -> None:
    counters = [op for op in network("resnet18").ops if op.dtype == "int64" and op.operator == "aten.add_"]
    assert len(counters) == 20
    assert all(op.flops <= 1.0 and op.bytes <= 16.0 and op.saved_bytes == 0.0 for op in counters)


def test_pooling_over_the_whole_plane_is_pooling() -> None:
    pools = list(network("resnet18").of(Phase.FORWARD, Kind.POOL))
    assert [op.detail["kernel"] for op in pools] == [[3, 3], [7, 7]]


def test_convolutions_are_told_apart_by_their_groups() -> None:
    row = features(network("mobilenet_v2"))
    assert row["forward_depthwise_ops"] == 17.0
    assert features(network("resnext50_32x4d"))["forward_grouped_ops"] == 16.0
    assert "forward_grouped_ops" not in row
    kinds = ("conv", "conv1x1", "depthwise", "linear")
    assert sum(row[f"forward_{kind}_flops"] for kind in kinds) == pytest.approx(2.0 * row["forward_macs"])
    assert row["input_size"] == 224.0
    assert row["batch"] == float(BATCH)


def test_what_operators_save_adds_up_to_what_the_graph_saves() -> None:
    graph = network("mobilenet_v2")
    assert sum(op.saved_bytes for op in graph.ops) == graph.saved_bytes


def test_a_graph_comes_back_from_its_document() -> None:
    graph = network("shufflenet_v2_x1_0")
    assert Graph.from_json(graph.to_json()) == graph


def test_images_of_another_size_cost_in_proportion() -> None:
    small = graph_of(ModelSpec("torchvision:resnet18", BATCH, image=112))
    # All but the classifier works on planes of a quarter of the size; 7 × 7 becomes 4 × 4, which costs more.
    assert small.input_shape == (BATCH, 3, 112, 112)
    assert network("resnet18").forward_macs / 4 < small.forward_macs < network("resnet18").forward_macs / 3.5


def test_a_transformer_of_images_is_told_the_size_it_has_to_know() -> None:
    graph = graph_of(ModelSpec("torchvision:vit_b_32", 1, optimizer=Optimizer.NONE, image=64))
    assert graph.input_shape == (1, 3, 64, 64)
    assert next(op for op in graph.ops if op.kind is Kind.ATTENTION).detail["m"] == 2 * 2 + 1


def test_a_network_of_clips_is_given_clips() -> None:
    graph = graph_of(ModelSpec("torchvision:r3d_18", 1, optimizer=Optimizer.NONE, image=32))
    assert graph.input_shape == (1, 3, 16, 32, 32)


def test_a_network_that_looks_at_numbers_while_it_is_built_is_built_on_the_cpu_and_says_so() -> None:
    graph = graph_of(ModelSpec("torchvision:regnet_x_400mf", 1, optimizer=Optimizer.NONE))
    assert graph.forward_macs / 1e9 == pytest.approx(0.4, rel=0.05)
    assert "built with its weights on the CPU" in graph.notes[0]


def test_a_name_that_torchvision_does_not_have_gets_a_suggestion() -> None:
    with pytest.raises(GraphError, match=r"torchvision has no model 'resnet5'; did you mean .*resnet50"):
        graph_of(ModelSpec("torchvision:resnet5", 1))


def test_images_too_small_for_a_network_are_refused_with_the_cause() -> None:
    with pytest.raises(GraphError, match=r"torchvision:alexnet: in layer features\.\d+, .*too small"):
        graph_of(ModelSpec("torchvision:alexnet", 1, image=8))
