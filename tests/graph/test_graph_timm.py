"""Networks of timm."""

from __future__ import annotations

import pytest
from tracing import product_macs

from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.models.libraries import library
from gpuwise.graph.ops import GraphError, Kind, Optimizer, Phase


@pytest.fixture(scope="module", autouse=True)
def _timm() -> None:
    try:
        library("timm")
    except GraphError as error:
        pytest.skip(str(error))


def test_a_transformer_costs_what_its_paper_says() -> None:
    graph = graph_of(ModelSpec("timm:vit_tiny_patch16_224", 2))
    assert graph.forward_macs / 2e9 == pytest.approx(1.26, rel=0.02)  # 1.1 without attention's own products
    assert graph.parameters == 5_717_416
    attention = [op.macs for op in graph.of(Phase.FORWARD, Kind.ATTENTION)]
    assert attention == [2 * 3 * 197 * 197 * (64 + 64)] * 12
    # 16 × 16 patches have no gradient, fused attention computes its scores again: 2.5 for 2.
    patches = next(op.macs for op in graph.ops if op.kind is Kind.CONV)
    expected = 2 * graph.forward_macs - patches + 0.5 * sum(attention)
    assert product_macs(graph, Phase.BACKWARD) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "mobilenetv3_small_050"])
def test_networks_that_must_know_the_size_of_images_and_others_take_another_size(name: str) -> None:
    graph = graph_of(ModelSpec(f"timm:{name}", 1, optimizer=Optimizer.NONE, image=96))
    assert graph.input_shape == (1, 3, 96, 96)


def test_a_name_that_timm_does_not_have_gets_a_suggestion() -> None:
    with pytest.raises(GraphError, match=r"timm has no model 'resnet5O'; did you mean .*resnet50"):
        graph_of(ModelSpec("timm:resnet5O", 1))
