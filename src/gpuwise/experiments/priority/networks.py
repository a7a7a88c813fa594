"""The networks of the nine MLPerf jobs, to predict what they gain from a GPU where nothing was measured.

The measured jobs' batches are not published; these are the usual ones of MLPerf v0.5. Detectors are
represented by their backbones, audio and sentences are short, since recurrent layers are traced step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from gpuwise.graph.cache import cached_graph
from gpuwise.graph.models.by_name import ModelSpec, graph_of_function
from gpuwise.graph.ops import Graph
from gpuwise.predict import registry
from gpuwise.predict.time.step_time import step_columns


def predicted_gains() -> dict[str, float]:
    """How many times as fast each job is believed to be on a V100 as on a P100, from its network alone."""
    predictor: Any = registry.load("step_time").predictor
    found = {}
    for name, graph in graphs().items():
        p100_s, v100_s = predictor.estimate(step_columns(graph, ["P100", "V100"])).value
        found[name] = float(p100_s / v100_s)
    return found


def graphs() -> dict[str, Graph]:
    """One training step of each."""
    return {
        "IC": cached_graph(ModelSpec("torchvision:resnet50", 32)),
        "SSD": cached_graph(ModelSpec("torchvision:resnet34", 32, image=300)),
        "OD": cached_graph(ModelSpec("torchvision:resnet50", 2, image=800)),
        "RM": _traced(_collaborative_filter, 2048),
        "SA": _traced(_sentence_classifier, 100),
        "RT": _traced(_recurrent_translator, 128),
        "TL": _traced(_transformer, 64),
        "SR": _traced(_speech_recognizer, 16),
        "RF": _traced(_go_player, 256),
    }


def _traced(build: Callable[[int], Any], batch: int) -> Graph:
    return graph_of_function(build, ModelSpec(build.__name__.strip("_"), batch))


def _collaborative_filter(batch: int) -> Any:
    """Neural collaborative filtering on MovieLens 20M: 138,493 users, 26,744 films."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors = nn.ModuleList([nn.Embedding(138_493, 64), nn.Embedding(26_744, 64)])
            self.inputs = nn.ModuleList([nn.Embedding(138_493, 128), nn.Embedding(26_744, 128)])
            sizes = (256, 256, 128, 64)
            layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
            self.layers = nn.Sequential(*(layer for pair in layers for layer in pair))
            self.last = nn.Linear(128, 1)

        def forward(self, user: Any, film: Any) -> Any:
            product = self.factors[0](user) * self.factors[1](film)
            deep = self.layers(torch.cat([self.inputs[0](user), self.inputs[1](film)], 1))
            return self.last(torch.cat([product, deep], 1))

    return Net(), (torch.zeros(batch, dtype=torch.long),) * 2


def _sentence_classifier(batch: int) -> Any:
    """Two convolutions over the words of a review, each followed by its maximum."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20_000, 512)
            self.wide = nn.ModuleList([nn.Conv1d(512, 1024, 3), nn.Conv1d(512, 1024, 4)])
            self.last = nn.Linear(2048, 2)

        def forward(self, text: Any) -> Any:
            words = self.words(text).transpose(1, 2)
            return self.last(torch.cat([torch.tanh(conv(words)).max(2)[0] for conv in self.wide], 1))

    return Net(), (torch.zeros(batch, 400, dtype=torch.long),)


def _recurrent_translator(batch: int) -> Any:
    """GNMT: four LSTM layers to read, the first in both directions, four to write with attention."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.written = nn.Embedding(32_000, 1024), nn.Embedding(32_000, 1024)
            self.both_ways = nn.LSTM(1024, 1024, 1, bidirectional=True, batch_first=True)
            self.encoder = nn.LSTM(2048, 1024, 3, batch_first=True)
            self.decoder = nn.LSTM(2048, 1024, 4, batch_first=True)
            self.last = nn.Linear(1024, 32_000)

        def forward(self, source: Any, target: Any) -> Any:
            memory = self.encoder(self.both_ways(self.read(source))[0])[0]
            asked = self.written(target)
            seen = torch.softmax(asked @ memory.transpose(1, 2), -1) @ memory
            return self.last(self.decoder(torch.cat([asked, seen], -1))[0])

    return Net(), (torch.zeros(batch, 12, dtype=torch.long),) * 2


def _transformer(batch: int) -> Any:
    """The large Transformer: 6 + 6 layers of width 1024."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(33_708, 1024)
            self.layers = nn.Transformer(1024, 16, 6, 6, 4096, batch_first=True)
            self.last = nn.Linear(1024, 33_708)

        def forward(self, source: Any, target: Any) -> Any:
            return self.last(self.layers(self.words(source), self.words(target)))

    return Net(), (torch.zeros(batch, 32, dtype=torch.long),) * 2


def _speech_recognizer(batch: int) -> Any:
    """Deep Speech 2: two convolutions over the spectrum, five GRU layers in both directions."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spectral = nn.Sequential(
                nn.Conv2d(1, 32, (41, 11), 2), nn.BatchNorm2d(32), nn.Hardtanh(),
                nn.Conv2d(32, 32, (21, 11), (2, 1)), nn.BatchNorm2d(32), nn.Hardtanh(),
            )  # fmt: skip
            self.layers = nn.GRU(32 * 31, 800, 5, bidirectional=True, batch_first=True)
            self.last = nn.Linear(1600, 29)

        def forward(self, spectrum: Any) -> Any:
            features = self.spectral(spectrum).permute(0, 3, 1, 2).flatten(2)
            return self.last(self.layers(features)[0])

    return Net(), (torch.zeros(batch, 1, 201, 48),)


def _go_player(batch: int) -> Any:
    """MiniGo on a 9 × 9 board: nine residual blocks of width 128."""
    import torch
    from torch import nn

    def block() -> Any:
        parts = [(nn.Conv2d(128, 128, 3, padding=1), nn.BatchNorm2d(128)) for _ in range(2)]
        return nn.Sequential(*parts[0], nn.ReLU(), *parts[1])

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(17, 128, 3, padding=1)
            self.blocks = nn.ModuleList([block() for _ in range(9)])
            self.moves = nn.Conv2d(128, 2, 1)
            self.last = nn.Linear(2 * 81, 82)

        def forward(self, board: Any) -> Any:
            seen = self.first(board)
            for each in self.blocks:
                seen = torch.relu(seen + each(seen))
            return self.last(self.moves(seen).flatten(1))

    return Net(), (torch.zeros(batch, 17, 9, 9),)
