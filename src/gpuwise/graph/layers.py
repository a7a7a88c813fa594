"""Layers and their complexity, as the per-layer time model of Ardagna et al. counts it.

For a layer with output height, width and channels H × W × Cout, a filter or window of Hf × Wf, an input of
Hin × Win × Cin and normalization over Cn channels, the operations for each of an image's H · W output positions are

| layer | forward | backward |
| --- | --- | --- |
| convolution | Hf Wf Cin Cout | (2 Hf Wf Cin + 1) Cout |
| fully connected | Hin Win Cin Cout | 2 Hin Win Cin Cout |
| loss (softmax) | 4 Cout − 1 | Cout + 1 |
| normalization | 5 Cout + Cn − 2 | 8 Cout + Cn − 1 |
| pooling | Hf Wf Cout | (Hf Wf + 1) Cout |
| ReLU | 3 Cout | 4 Cout |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod

from gpuwise.graph.ops import Graph, Kind, Op, Phase

LOSSES = ("aten._log_softmax", "onnx.SoftmaxCrossEntropyLoss")
"""The operators that represent a loss; those that follow them are small."""


class LayerKind(StrEnum):
    """The kinds of layers of the per-layer model."""

    CONV = "conv"
    FC = "fc"
    LOSS = "loss"
    NORM = "norm"
    POOL = "pool"
    RELU = "relu"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's shape, for one image."""

    kind: LayerKind
    channels_out: int
    height: int = 1
    """Of the output."""
    width: int = 1
    channels_in: int = 1
    kernel_height: int = 1
    """Of the filter or window; of a fully connected layer, the input's."""
    kernel_width: int = 1
    norm_channels: int = 0
    """Number of channels over which it normalizes."""
    groups: int = 1

    def forward(self) -> int:
        """Operations of the forward pass for one image."""
        return self.height * self.width * self.forward_each()

    def backward(self) -> int:
        """Operations of the backward pass for one image."""
        return self.height * self.width * self.backward_each()

    def forward_each(self) -> int:
        """Operations of the forward pass for one output position."""
        window, out = self.kernel_height * self.kernel_width, self.channels_out
        return {
            LayerKind.CONV: window * self.channels_in // self.groups * out,
            LayerKind.FC: window * self.channels_in * out,
            LayerKind.LOSS: 4 * out - 1,
            LayerKind.NORM: 5 * out + self.norm_channels - 2,
            LayerKind.POOL: window * out,
            LayerKind.RELU: 3 * out,
        }[self.kind]

    def backward_each(self) -> int:
        """Operations of the backward pass for one output position."""
        window, out = self.kernel_height * self.kernel_width, self.channels_out
        return {
            LayerKind.CONV: (2 * window * self.channels_in // self.groups + 1) * out,
            LayerKind.FC: 2 * window * self.channels_in * out,
            LayerKind.LOSS: out + 1,
            LayerKind.NORM: 8 * out + self.norm_channels - 1,
            LayerKind.POOL: (window + 1) * out,
            LayerKind.RELU: 4 * out,
        }[self.kind]


def layers(graph: Graph) -> list[Layer]:
    """The layers of a graph of kinds in the per-layer model; others (sums, copies) are left out."""
    found = (_layer(op, graph.batch) for op in graph.of(Phase.FORWARD))
    return [layer for layer in found if layer is not None]


def _layer(op: Op, batch: int) -> Layer | None:
    if not op.output:
        return None
    if op.kind is Kind.LINEAR and "m" in op.detail:
        rows = op.detail["m"] * op.detail.get("count", 1)
        return Layer(LayerKind.FC, op.detail["n"], max(1, round(rows / batch)), channels_in=op.detail["k"])
    if op.kind is Kind.NORM and "channels" in op.detail:
        return _norm(op, batch)
    channels = op.output[1] if len(op.output) > 1 else op.output[0]
    height, width = _plane(op.output)
    if op.kind is Kind.CONV:
        # A transposed convolution applies its filters at each position of the input.
        height, width = _plane((1, 1, *op.detail["input"])) if op.detail["transposed"] else (height, width)
        return Layer(LayerKind.CONV, channels, height, width, op.detail["channels_in"], *_window(op.detail["kernel"]),
                     groups=op.detail["groups"])  # fmt: skip
    if op.kind is Kind.POOL:
        return Layer(LayerKind.POOL, channels, height, width, 1, *_window(op.detail.get("kernel", 1)))
    if op.kind is Kind.ACTIVATION:
        return Layer(LayerKind.RELU, channels, height, width)
    if op.kind is Kind.LOSS and op.operator in LOSSES:
        rows = max(1, round(op.output[0] / batch))
        return Layer(LayerKind.LOSS, channels, rows * height, width)
    return None


def _norm(op: Op, batch: int) -> Layer:
    """Over the channels of each position, or over the last dimensions."""
    together = op.detail["channels"]
    if op.operator.endswith(("layer_norm", "rms_norm", "LayerNormalization", "RMSNormalization")):
        positions = max(1, round(prod(op.output) / together / batch))
        return Layer(LayerKind.NORM, together, positions, norm_channels=together)
    # PyTorch runs instance norm as batch norm over one image with the channels of all.
    images = batch if op.output[0] == 1 and batch > 1 and op.output[1] % batch == 0 else 1
    return Layer(LayerKind.NORM, op.output[1] // images, *_plane(op.output), norm_channels=together // images)


def _plane(shape: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of an output; more dimensions count as width."""
    rest = shape[2:]
    return (rest[0], prod(rest[1:])) if len(rest) > 1 else (prod(rest), 1)


def _window(kernel: object) -> tuple[int, int]:
    if isinstance(kernel, (list, tuple)):
        return (int(kernel[0]), int(prod(kernel[1:]))) if len(kernel) > 1 else (int(kernel[0]), 1)
    return int(str(kernel)), int(str(kernel))
