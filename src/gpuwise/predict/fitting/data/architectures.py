"""The architecture behind a name in a data set, and features of its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from gpuwise.graph.cache import cached_graph
from gpuwise.graph.models.by_name import ModelSpec
from gpuwise.graph.ops import Graph, GraphError, Optimizer
from gpuwise.predict.fitting.data.blueprints import SPEECH_PIECES
from gpuwise.predict.memory.parts import at_batch, memory_features
from gpuwise.predict.time.work import work_row

TRACED = 2
"""The batch size of traces: batch normalization of single pixels needs two."""
BLUEPRINTS = "gpuwise.predict.fitting.data.blueprints"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as `cached_graph` takes it."""

    model: str
    image: int | None = None
    pieces: int = 1
    """How often each kernel of the trace runs: what repeats over time is traced once."""
    known_as: str = ""

    @property
    def network(self) -> str:
        """The network's name, the same in all data sets and for all image sizes."""
        return self.known_as or self.model.rpartition(":")[2]


def _blueprint(name: str, pieces: int = 1, known_as: str = "") -> Architecture:
    return Architecture(f"{BLUEPRINTS}:{name}", pieces=pieces, known_as=known_as)


SALUS: Mapping[str, Architecture] = {
    "inception3": Architecture("torchvision:inception_v3"),
    "inception4": Architecture("timm:inception_v4"),
    "googlenet": _blueprint("plain_googlenet", known_as="googlenet"),
    "overfeat": _blueprint("overfeat"),
    **{name: _blueprint(f"first_{name}", known_as=name) for name in ("resnet50", "resnet101", "resnet152")},
}
"""TensorFlow's CNN benchmarks where their names or networks differ from torchvision's."""
MISO: Mapping[str, Architecture] = {
    "resnet": Architecture("torchvision:resnet50", 32),
    "mobilenet": Architecture("torchvision:mobilenet_v2", 32),
    "bert": _blueprint("bert_base"),
    "transformer": _blueprint("series_transformer"),
    "deepspeech2": _blueprint("deep_speech", SPEECH_PIECES),
    "embedding": _blueprint("word_convolutions"),
    "gnn": _blueprint("molecule_passing"),
    "cyclegan": _blueprint("cycle_gan"),
    "dummy": _blueprint("two_layers"),
}
"""The training scripts of MISO, Keras examples: CIFAR-10 images, texts, speech, molecules."""


GANDIVA: Mapping[str, Architecture] = {
    "VAE": _blueprint("variational_autoencoder"),
    "SuperResolution": _blueprint("super_resolution"),
    "LSTM": _blueprint("word_lstm"),
    "ResNet-50": Architecture("torchvision:resnet50"),
    "ResNext-50": Architecture("torchvision:resnext50_32x4d", 32),
}
"""Jobs of Gandiva's packing table that are public examples; of the other language models sizes are not known."""


def architecture(name: str, known: Mapping[str, Architecture] | None = None) -> Architecture:
    """The architecture of a name: as ``known`` for the data set, else torchvision's of that name, else timm's."""
    if known and name in known:
        return known[name]
    for library in ("torchvision", "timm"):
        made = Architecture(f"{library}:{name}")
        if traced(made) is not None:
            return made
    return Architecture(name)


@cache
def traced(made: Architecture, batch: int = TRACED) -> Graph | None:
    """The graph of one step at a small batch; None if there is no such model."""
    try:
        return cached_graph(ModelSpec(made.model, batch, optimizer=Optimizer.MOMENTUM, image=made.image))
    except GraphError:
        return None


def memory_row(made: Architecture, batch: float, states: int) -> dict[str, float] | None:
    """The columns of the memory model at a batch size, all parameters trained; None if there is no such model."""
    row = _features(made, memory_features)
    if row is None:
        return None
    training = {"optimizer_states": float(states), "trainable_bytes": row["parameter_bytes"]}
    return at_batch(row, TRACED, batch) | training


def utilization_row(made: Architecture, batch: float, gpu: str) -> dict[str, float] | None:
    """The columns of the utilization model that come from the graph; None if there is no such model."""
    small, large = traced(made), traced(made, 2 * TRACED)
    if small is None or large is None:
        return None
    return work_row(small, large, batch, gpu, made.pieces)


@cache
def _features(made: Architecture, of: Callable[[Graph], dict[str, float]]) -> dict[str, float] | None:
    graph = traced(made)
    return None if graph is None else of(graph)
