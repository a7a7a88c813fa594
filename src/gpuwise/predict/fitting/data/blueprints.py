"""Small networks of the data sets that no library has, written in PyTorch from their public descriptions.

Each function gives a module and its inputs for one batch. They stand in for what was measured in TensorFlow: shapes and
parameter counts are those of the original, where lengths vary in the original's data they are typical ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Made = tuple[Any, Sequence[Any]]
"""A module and its inputs."""

SPEECH_FRAMES, SPEECH_PIECES = 1250, 50
"""Of a padded batch of LJSpeech at 160 samples a frame: clips are up to 10 s long, 6.6 s on average. To be traced
quickly a clip is cut into pieces, as many more in the batch: sizes and FLOPs stay, the number of kernels does not."""
MOLECULE_ATOMS, MOLECULE_PAIRS, LARGEST_MOLECULE = 24, 76, 130
"""Of BBBP: atoms, and pairs with self-loops, of a molecule; atoms to which the readout is padded."""


def overfeat(batch: int) -> Made:
    """OverFeat as in TensorFlow's CNN benchmarks, for images of 231 × 231."""
    import torch
    from torch import nn

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]

    layers = [*conv(3, 96, 11, 4), nn.MaxPool2d(2), *conv(96, 256, 5), nn.MaxPool2d(2), *conv(256, 512, 3, 1, 1)]
    layers += [*conv(512, 1024, 3, 1, 1), *conv(1024, 1024, 3, 1, 1), nn.MaxPool2d(2), nn.Flatten()]
    layers += [nn.Linear(36 * 1024, 3072), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(3072, 4096)]
    layers += [nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers), [torch.empty(batch, 3, 231, 231)]


def first_resnet50(batch: int) -> Made:
    """ResNet-50 as first published and in TensorFlow's CNN benchmarks: a block's stride is in its 1 × 1 convolution."""
    return _first_resnet("resnet50", batch)


def first_resnet101(batch: int) -> Made:
    """ResNet-101, likewise."""
    return _first_resnet("resnet101", batch)


def first_resnet152(batch: int) -> Made:
    """ResNet-152, likewise."""
    return _first_resnet("resnet152", batch)


def _first_resnet(name: str, batch: int) -> Made:
    """With the stride before the 3 × 3 convolution its inputs are a quarter of torchvision's, which has it there."""
    import torch

    from gpuwise.graph.models.libraries import library

    network = library("torchvision").models.get_model(name)
    for block in network.modules():
        if hasattr(block, "conv3"):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, (1, 1)
    return network, [torch.empty(batch, 3, 224, 224)]


def plain_googlenet(batch: int) -> Made:
    """GoogLeNet without batch normalization and without auxiliary outputs, as in TensorFlow's CNN benchmarks."""
    import torch
    from torch import nn

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), nn.ReLU(inplace=True))

    class Branches(nn.Module):
        def __init__(self, inputs: int, one: int, in3: int, out3: int, in5: int, out5: int, pooled: int) -> None:
            super().__init__()
            self.one = conv(inputs, one, 1)
            self.three = nn.Sequential(conv(inputs, in3, 1), conv(in3, out3, 3))
            self.five = nn.Sequential(conv(inputs, in5, 1), conv(in5, out5, 5))
            self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, pooled, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)

    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), conv(64, 64, 1), conv(64, 192, 3)]
    channels = 192
    for stage in _INCEPTION_STAGES:
        layers.append(nn.MaxPool2d(3, 2, 1))
        for widths in stage:
            layers.append(Branches(channels, *widths))
            channels = widths[0] + widths[2] + widths[4] + widths[5]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers), [torch.empty(batch, 3, 224, 224)]


_INCEPTION_STAGES = (  # Szegedy et al., Going deeper with convolutions, table 1
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def _encoder(width: int, heads: int, head_width: int, hidden: int) -> Any:
    """A transformer layer that writes its attention weights to memory, as Keras' does."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, heads * head_width) for _ in range(3))
            self.out = nn.Linear(heads * head_width, width)
            self.norm, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)
            self.drop = nn.Dropout(0.1)

        def _split(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(*x.shape[:-1], heads, head_width).transpose(1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = (self._split(each(x)) for each in (self.query, self.key, self.value))
            weights = self.drop(torch.softmax(query @ key.transpose(-1, -2) / head_width**0.5, -1))
            x = self.norm(x + self.drop(self.out((weights @ value).transpose(1, 2).flatten(2))))
            grown: torch.Tensor = nn.functional.gelu(self.wide(x))
            return torch.as_tensor(self.norm_2(x + self.drop(self.narrow(grown))))

    return Encoder()


def bert_base(batch: int) -> Made:
    """BERT base, cased, with a classifier, for texts padded to 512 tokens."""
    import torch
    from torch import nn

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(28996, 768), nn.Embedding(512, 768)
            self.norm = nn.LayerNorm(768)
            self.layers = nn.Sequential(*(_encoder(768, 12, 64, 3072) for _ in range(12)))
            self.pool, self.classes = nn.Linear(768, 768), nn.Linear(768, 2)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.words(tokens) + self.places.weight)
            return torch.as_tensor(self.classes(torch.tanh(self.pool(self.layers(x)[:, 0]))))

    return Bert(), [torch.empty(batch, 512, dtype=torch.long)]


def series_transformer(batch: int) -> Made:
    """Keras' example of a transformer that classifies time series of 500 values (FordA)."""
    import torch
    from torch import nn

    layers = [_encoder(1, 4, 256, 4) for _ in range(4)]
    head = [nn.Flatten(), nn.Linear(500, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, 2)]
    return nn.Sequential(*layers, *head), [torch.empty(batch, 500, 1)]


def deep_speech(batch: int) -> Made:
    """Keras' example after Deep Speech 2: two convolutions and five bidirectional GRUs of 512 units."""
    import torch
    from torch import nn

    class DeepSpeech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = [nn.Conv2d(1, 32, (11, 41), 2, (5, 20), bias=False), nn.BatchNorm2d(32), nn.ReLU()]
            second = [nn.Conv2d(32, 32, (11, 21), (1, 2), (5, 10), bias=False), nn.BatchNorm2d(32), nn.ReLU()]
            self.convolutions = nn.Sequential(*first, *second)
            self.recurrent = nn.GRU(32 * 49, 512, 5, batch_first=True, dropout=0.5, bidirectional=True)
            self.dense = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Dropout(), nn.Linear(1024, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frames = self.convolutions(x).transpose(1, 2).flatten(2)
            return torch.as_tensor(self.dense(self.recurrent(frames)[0]).softmax(-1))

    return DeepSpeech(), [torch.empty(batch * SPEECH_PIECES, 1, SPEECH_FRAMES // SPEECH_PIECES, 193)]


def word_convolutions(batch: int) -> Made:
    """Keras' example of a text classifier: frozen embeddings of 200 words and three 1-d convolutions."""
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20002, 100).requires_grad_(False)
            layers = [nn.Conv1d(100, 128, 5), nn.ReLU(), nn.MaxPool1d(5), nn.Conv1d(128, 128, 5), nn.ReLU()]
            layers += [nn.MaxPool1d(5), nn.Conv1d(128, 128, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten()]
            self.layers = nn.Sequential(*layers, nn.Linear(128, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 20))

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.layers(self.words(words).transpose(1, 2)))

    return Words(), [torch.empty(batch, 200, dtype=torch.long)]


def molecule_passing(batch: int) -> Made:
    """Keras' example of message passing on molecules (BBBP): an edge network, a GRU cell, a transformer as readout."""
    import torch
    from torch import nn

    class Molecules(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge, self.cell = nn.Linear(7, 64 * 64), nn.GRUCell(64, 64)
            self.readout = _encoder(64, 8, 64, 512)
            self.head = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))

        def forward(self, atoms: torch.Tensor, bonds: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
            for _ in range(4):
                messages = self.edge(bonds).unflatten(-1, (64, 64)) @ atoms[pairs[:, 1]].unsqueeze(-1)
                atoms = self.cell(torch.zeros_like(atoms).index_add(0, pairs[:, 0], messages.squeeze(-1)), atoms)
            padded = nn.functional.pad(atoms.reshape(batch, -1, 64), (0, 0, 0, LARGEST_MOLECULE - MOLECULE_ATOMS))
            return torch.as_tensor(self.head(self.readout(padded).mean(1)))

    inputs = [torch.empty(batch * MOLECULE_ATOMS, 64), torch.empty(batch * MOLECULE_PAIRS, 7)]
    return Molecules(), [*inputs, torch.empty(batch * MOLECULE_PAIRS, 2, dtype=torch.long)]


def two_layers(batch: int) -> Made:
    """TensorFlow's first example: two dense layers for Fashion-MNIST."""
    import torch
    from torch import nn

    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), [torch.empty(batch, 784)]


def cycle_gan(batch: int) -> Made:
    """Keras' example of CycleGAN on images of 256 × 256: each step runs two generators three times."""
    import torch
    from torch import nn

    def block(made: nn.Module, width: int) -> list[nn.Module]:
        return [made, nn.InstanceNorm2d(width, affine=True), nn.ReLU(inplace=True)]

    def generator() -> nn.Module:
        layers = [nn.ReflectionPad2d(3), *block(nn.Conv2d(3, 64, 7), 64)]
        layers += [*block(nn.Conv2d(64, 128, 3, 2, 1), 128), *block(nn.Conv2d(128, 256, 3, 2, 1), 256)]
        for _ in range(18):  # nine residual blocks of two; their additions are left out
            layers += [nn.ReflectionPad2d(1), *block(nn.Conv2d(256, 256, 3), 256)]
        layers += block(nn.ConvTranspose2d(256, 128, 3, 2, 1, 1), 128)
        layers += block(nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), 64)
        return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh())

    class CycleGan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there, self.back = generator(), generator()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            there, back = self.there, self.back
            return [back(there(x)), there(back(y)), back(x), there(y)]

    return CycleGan(), [torch.empty(batch, 3, 256, 256), torch.empty(batch, 3, 256, 256)]


def variational_autoencoder(batch: int) -> Made:
    """PyTorch's example of a variational autoencoder for MNIST; the noise is left out."""
    import torch
    from torch import nn

    layers = [nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 20), nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784)]
    return nn.Sequential(*layers, nn.Sigmoid()), [torch.empty(batch, 784)]


def super_resolution(batch: int) -> Made:
    """PyTorch's example of super-resolution by a factor of three, for images of 85 × 85 pixels."""
    import torch
    from torch import nn

    layers = [nn.Conv2d(1, 64, 5, 1, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()]
    layers += [nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3)]
    return nn.Sequential(*layers), [torch.empty(batch, 1, 85, 85)]


def word_lstm(batch: int) -> Made:
    """PyTorch's example of a language model on WikiText-2: two LSTM layers of 200 units over 35 words."""
    import torch
    from torch import nn

    class WordModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.recurrent = nn.Embedding(33278, 200), nn.LSTM(200, 200, 2, dropout=0.2)
            self.scores = nn.Linear(200, 33278)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.scores(self.recurrent(self.words(words))[0]).flatten(0, 1))

    return WordModel(), [torch.empty(35, batch, dtype=torch.long)]
