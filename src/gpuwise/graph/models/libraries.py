"""Networks of torchvision and timm, by name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from gpuwise.graph.ops import GraphError
from gpuwise.graph.torch.prepare import in_one_line
from gpuwise.graph.torch.trace import Built

if TYPE_CHECKING:
    from gpuwise.graph.models.by_name import ModelSpec

IMAGE = 224
FRAMES = 16


@cache
def library(name: str) -> ModuleType:
    """A library of models; the operators of torchvision are declared if its compiled part cannot be loaded."""
    if importlib.util.find_spec(name) is None:
        raise GraphError(f"{name} is not installed; pip install {name}")
    try:
        if importlib.util.find_spec("torchvision") is not None:  # timm and transformers import it too
            _import_torchvision()
        return importlib.import_module(name)
    except Exception as error:
        raise GraphError(f"{name} cannot be imported: {in_one_line(error)}") from error


_declared: list[Any] = []


def _import_torchvision() -> None:
    """Imports torchvision, also where its compiled part was built for another version of PyTorch."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if not misses_torchvision(error):
            raise
        for module in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        declared: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(declared)  # its declarations last as long as the object


def misses_torchvision(error: BaseException) -> bool:
    """Whether an error is caused by a torchvision that was compiled for another version of PyTorch."""
    return "torchvision::nms" in str(error)


def from_torchvision(spec: ModelSpec, name: str) -> Callable[[], Built]:
    """One of torchvision's networks, on images or clips of the size its published weights were trained for."""
    models = library("torchvision").models
    known = models.list_models()
    if name not in known:
        raise GraphError(f"torchvision has no model {name!r}{nearest(name, known)}")

    def build() -> Built:
        # Without the auxiliary heads of two old networks, as they are benchmarked.
        old = name in ("googlenet", "inception_v3")
        plain: dict[str, Any] = {"aux_logits": False, "init_weights": False} if old else {}
        if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
            plain["weights_backbone"] = None  # else it would be downloaded
        size = spec.image or _torchvision_size(models, name)
        model = _sized(lambda **sized: models.get_model(name, weights=None, **plain, **sized), "image_size", size)
        frames = (FRAMES,) if _takes_clips(model) else ()
        return Built(model, [torch.empty(spec.batch, 3, *frames, size, size)])

    return build


def _takes_clips(model: torch.nn.Module) -> bool:
    return any(isinstance(each, torch.nn.Conv3d) for each in model.modules())


def _torchvision_size(models: ModuleType, name: str) -> int:
    """The size of images that a network's first published weights were trained for."""
    try:
        crop = next(iter(models.get_model_weights(name))).transforms.keywords.get("crop_size", IMAGE)
    except (StopIteration, AttributeError, ValueError):
        return IMAGE
    return int(crop[0] if isinstance(crop, (list, tuple)) else crop)


def from_timm(spec: ModelSpec, name: str) -> Callable[[], Built]:
    """One of timm's networks, on images of its usual size."""
    timm = library("timm")
    if not timm.is_model(name):
        raise GraphError(f"timm has no model {name!r}{nearest(name, timm.list_models())}")

    def build() -> Built:
        model = _sized(lambda **sized: timm.create_model(name, pretrained=False, **sized), "img_size", spec.image)
        channels, height, width = model.default_cfg.get("input_size", (3, IMAGE, IMAGE))
        size = (spec.image, spec.image) if spec.image else (height, width)
        return Built(model, [torch.empty(spec.batch, channels, *size)])

    return build


def _sized(make: Callable[..., Any], keyword: str, size: int | None) -> Any:
    """Makes a network for a size of images; one without such an argument takes images of any size."""
    if size is None:
        return make()
    try:
        return make(**{keyword: size})
    except TypeError as error:
        if keyword not in str(error):
            raise
        return make()


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the most similar known names."""
    close = get_close_matches(name, list(known), 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
