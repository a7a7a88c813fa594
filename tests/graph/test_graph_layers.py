"""Layers and their complexity: the formulas of the per-layer model, exactly."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="graphs are traced with PyTorch, which is not installed")

from torch import nn
from tracing import traced

from gpuwise.graph.layers import Layer, LayerKind, layers

FORMULAS = [
    # layer, forward and backward for one output position
    (Layer(LayerKind.CONV, 64, 7, 5, 16, 3, 2), 3 * 2 * 16 * 64, (2 * 3 * 2 * 16 + 1) * 64),
    (Layer(LayerKind.CONV, 64, 7, 5, 16, 3, 3, groups=4), 3 * 3 * 4 * 64, (2 * 3 * 3 * 4 + 1) * 64),
    (
        Layer(LayerKind.FC, 1000, channels_in=512, kernel_height=7, kernel_width=7),
        7 * 7 * 512 * 1000,
        2 * 7 * 7 * 512 * 1000,
    ),
    (Layer(LayerKind.LOSS, 1000), 4 * 1000 - 1, 1000 + 1),
    (Layer(LayerKind.NORM, 64, 7, 5, norm_channels=64), 5 * 64 + 64 - 2, 8 * 64 + 64 - 1),
    (Layer(LayerKind.NORM, 96, 7, 5, norm_channels=5), 5 * 96 + 5 - 2, 8 * 96 + 5 - 1),
    (Layer(LayerKind.POOL, 64, 7, 5, 1, 3, 2), 3 * 2 * 64, (3 * 2 + 1) * 64),
    (Layer(LayerKind.RELU, 64, 7, 5), 3 * 64, 4 * 64),
]


@pytest.mark.parametrize(("layer", "forward", "backward"), FORMULAS, ids=lambda each: str(getattr(each, "kind", "")))
def test_the_complexity_of_a_layer_is_exactly_that_of_the_table(layer: Layer, forward: int, backward: int) -> None:
    assert (layer.forward_each(), layer.backward_each()) == (forward, backward)
    positions = layer.height * layer.width
    assert (layer.forward(), layer.backward()) == (positions * forward, positions * backward)


def test_the_layers_of_a_network_are_found_with_their_shapes() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
        )  # fmt: skip

    found = layers(traced(make, (4, 3, 16, 16)))
    assert found == [
        Layer(LayerKind.CONV, 8, 16, 16, 3, 3, 3),
        Layer(LayerKind.NORM, 8, 16, 16, norm_channels=8),
        Layer(LayerKind.RELU, 8, 16, 16),
        Layer(LayerKind.POOL, 8, 8, 8, 1, 2, 2),
        Layer(LayerKind.CONV, 8, 6, 6, 8, 3, 3, groups=8),
        Layer(LayerKind.POOL, 8, 1, 1, 1, 6, 6),
        Layer(LayerKind.FC, 10, channels_in=8),
        Layer(LayerKind.LOSS, 10),
    ]


@pytest.mark.parametrize("batch", [1, 4])
def test_the_complexity_of_products_is_that_of_one_sample_whatever_the_batch(batch: int) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(6, 8, 4, stride=2), nn.Linear(18, 5))

    graph = traced(make, (batch, 4, 10))
    found = [layer for layer in layers(graph) if layer.kind in (LayerKind.CONV, LayerKind.FC)]
    assert [layer.forward() for layer in found] == [8 * 3 * 4 * 6, 8 * 4 * 6 * 8, 8 * 18 * 5]
    assert sum(layer.forward() for layer in found) == graph.forward_macs / batch


def test_a_layer_of_tokens_is_counted_for_each_token() -> None:
    found = layers(traced(lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU()), (2, 7, 16)))
    assert found == [
        Layer(LayerKind.NORM, 16, 7, norm_channels=16),
        Layer(LayerKind.FC, 32, 7, channels_in=16),
        Layer(LayerKind.RELU, 7, 32),
    ]
    assert found[2].forward() == 3 * 7 * 32


def test_instance_norm_is_counted_for_one_image() -> None:
    torch = pytest.importorskip("torch")
    from gpuwise.graph.models.by_name import ModelSpec, graph_of_function

    def build(batch: int) -> object:
        return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 1), torch.nn.InstanceNorm2d(16)), torch.zeros(batch, 3, 8, 8)

    found = [layers(graph_of_function(build, ModelSpec("instance", batch)))[1] for batch in (1, 8)]
    assert found[0] == found[1]
    assert found[0].channels_out == 16
