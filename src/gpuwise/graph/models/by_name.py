"""From the name of a model to its graph. Naming a file or a function means running its code."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwise.graph.models import FORMS
from gpuwise.graph.ops import Graph, GraphError, Optimizer, Precision

if TYPE_CHECKING:
    from gpuwise.graph.torch.trace import Built

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model by its name, and how it is trained."""

    model: str
    batch: int
    precision: Precision = Precision.FP32
    optimizer: Optimizer = Optimizer.MOMENTUM
    image: int | None = None
    """Height and width of images; by default the usual size of the model."""
    sequence: int | None = None
    """Tokens in a sequence, for language models."""

    def __post_init__(self) -> None:
        for name, what in (("batch", "a batch of {}"), ("image", "images of {} pixels"),
                           ("sequence", "sequences of {} tokens")):  # fmt: skip
            given = getattr(self, name)
            if given is not None or name == "batch":
                object.__setattr__(self, name, _positive(given, what.format(given)))
        for name, kind in (("precision", Precision), ("optimizer", Optimizer)):
            object.__setattr__(self, name, _choice(kind, getattr(self, name), name))


def _positive(value: object, what: str) -> int:
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise GraphError(f"{what}; it must be a whole number, 1 or more") from None
    if number < 1 or isinstance(value, bool):
        raise GraphError(f"{what}; it must be 1 or more")
    return number


def _choice(kind: type[Precision] | type[Optimizer], value: str, name: str) -> Precision | Optimizer:
    try:
        return kind(value)
    except ValueError:
        raise GraphError(f"no {name} {value!r}; give one of {', '.join(kind)}") from None


def graph_of(spec: ModelSpec) -> Graph:
    """Builds and traces a model. This runs the model's code, but needs neither a GPU nor weights."""
    if is_onnx(spec.model):
        from gpuwise.graph.onnx.file import read_onnx

        return read_onnx(Path(spec.model), spec)
    source, name = split_name(spec.model)
    return _traced(spec, lambda stack: _builder(spec, source, name, stack))


def graph_of_function(function: Callable[..., Any], spec: ModelSpec) -> Graph:
    """Builds and traces what a function returns: a module and its example inputs; ``spec.model`` is its name."""

    def builder(stack: ExitStack) -> Callable[[], Built]:
        from gpuwise.graph.models.own_code import from_function

        return from_function(function, spec.batch, spec.model)

    return _traced(spec, builder)


def _traced(spec: ModelSpec, builder: Callable[[ExitStack], Callable[[], Built]]) -> Graph:
    if importlib.util.find_spec("torch") is None:
        raise GraphError("a model is traced with PyTorch, which is not installed; pip install 'gpuwise[torch]'")
    from gpuwise.graph.torch.prepare import quietly, unchanged
    from gpuwise.graph.torch.trace import trace

    with ExitStack() as stack, unchanged(), quietly():
        return trace(builder(stack), spec.model, batch=spec.batch, precision=spec.precision, optimizer=spec.optimizer)


def is_onnx(model: str) -> bool:
    """Whether a model's name is that of an ONNX file."""
    return model.lower().endswith(".onnx")


def split_name(model: str) -> tuple[str, str]:
    """The library or file of a model, and its name there."""
    if model.endswith("config.json") and not model.startswith("hf:"):
        return "hf", model
    if Path(model).suffix in PICKLES:
        raise GraphError(f"{model}: gpuwise loads no pickles and needs no weights; give {FORMS}")
    source, _, name = model.partition(":") if model.startswith(("torchvision:", "timm:", "hf:")) else _split_last(model)
    if not source or not name:
        hint = f"; did you mean torchvision:{model} or timm:{model}?" if model.isidentifier() else ""
        raise GraphError(f"{model!r} is not the name of a model{hint or f'; give {FORMS}'}")
    return source, name


def _split_last(model: str) -> tuple[str, str, str]:
    return model.rpartition(":") if ":" in model else (model, "", "")


def _builder(spec: ModelSpec, source: str, name: str, stack: ExitStack) -> Callable[[], Built]:
    if source in ("torchvision", "timm"):
        from gpuwise.graph.models.libraries import from_timm, from_torchvision

        return (from_timm if source == "timm" else from_torchvision)(spec, name)
    if source == "hf":
        from gpuwise.graph.models.hugging_face import from_hugging_face

        return from_hugging_face(spec, name)
    from gpuwise.graph.models.own_code import from_callable, importable

    stack.enter_context(importable(source))
    return from_callable(spec, source, name)
