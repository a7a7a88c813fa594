"""Models of Hugging Face's transformers, from a configuration: no weights, and no code but that of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from gpuwise.graph.models.hf_configs import configuration
from gpuwise.graph.models.libraries import library
from gpuwise.graph.ops import GraphError
from gpuwise.graph.torch.state import in_one_line
from gpuwise.graph.torch.trace import Built

if TYPE_CHECKING:
    from gpuwise.graph.models.by_name import Ask

SEQUENCE = 128
TASKS = ("FOR_CAUSAL_LM_", "FOR_MASKED_LM_", "FOR_SEQ_TO_SEQ_CAUSAL_LM_", "FOR_IMAGE_CLASSIFICATION_", "")
SAMPLES = 16_000
"""A second of speech."""


def from_hugging_face(ask: Ask, name: str) -> Callable[[], Built]:
    """The model of a configuration: a config.json here, or a name that transformers finds."""
    transformers = library("transformers")
    config, notes = configuration(transformers, name)
    try:
        kind = _architecture(transformers, config)
    except ImportError as error:
        raise GraphError(f"{name}: transformers cannot import the model: {in_one_line(error)}") from error

    def build() -> Built:
        if ask.image and isinstance(getattr(config, "image_size", None), int):
            config.image_size = ask.image
        if hasattr(config, "use_cache"):
            config.use_cache = False  # keys and values are kept for generation, not for training
        return Built(kind(config), (), _example(config, kind, ask), notes=notes)

    return build


def _architecture(transformers: ModuleType, config: Any) -> Any:
    """The class of the model: what the configuration names, else the one for language, else the bare one."""
    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, str(name), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    for task in TASKS:
        table = getattr(transformers, f"MODEL_{task}MAPPING", {})
        if type(config) in table:
            kind = table[type(config)]
            return kind[0] if isinstance(kind, tuple) else kind
    raise GraphError(f"transformers has no model for a configuration of type {config.model_type!r}")


def _example(config: Any, kind: Any, ask: Ask) -> dict[str, Any]:
    """Inputs by what the model says it takes, with labels, so that it gives its own loss."""
    main = getattr(kind, "main_input_name", "input_ids")
    if main == "pixel_values":
        return _image(config, ask) | (_classes(ask) if "Classification" in kind.__name__ else {})
    if main == "input_features":  # spectrograms, of Whisper's length
        steps = 2 * getattr(config, "max_source_positions", 1500)
        given = {main: torch.empty(ask.batch, getattr(config, "num_mel_bins", 80), steps)}
    elif main == "input_values":
        given = {main: torch.empty(ask.batch, ask.sequence or SAMPLES)}
    else:
        given = {"input_ids": _tokens(config, ask)}
    if getattr(config, "vision_config", None) is not None and main == "input_ids":
        given |= _image(config.vision_config, ask)
    if getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = _tokens(config, ask)
    return given | _labels(kind.__name__, given, ask)


def _labels(kind: str, given: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
    if "LM" in kind or "ConditionalGeneration" in kind:
        return {"labels": given.get("decoder_input_ids", given.get("input_ids"))}
    if "TokenClassification" in kind:
        return {"labels": given["input_ids"]}
    if "QuestionAnswering" in kind:
        position = torch.zeros(ask.batch, dtype=torch.long)
        return {"start_positions": position, "end_positions": position}
    return _classes(ask) if "Classification" in kind else {}


def _classes(ask: Ask) -> dict[str, Any]:
    return {"labels": torch.zeros(ask.batch, dtype=torch.long)}


def _image(config: Any, ask: Ask) -> dict[str, Any]:
    size = ask.image or getattr(config, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
    return {"pixel_values": torch.empty(ask.batch, getattr(config, "num_channels", 3), height, width)}


def _tokens(config: Any, ask: Ask) -> torch.Tensor:
    config = getattr(config, "text_config", None) or config
    most = getattr(config, "max_position_embeddings", None)
    most = most if isinstance(most, int) and most > 0 else None
    if most and ask.sequence and ask.sequence > most:
        raise GraphError(f"sequences of {ask.sequence} tokens; the model takes {most} at most")
    return torch.zeros(ask.batch, ask.sequence or min(SEQUENCE, most or SEQUENCE), dtype=torch.long)
