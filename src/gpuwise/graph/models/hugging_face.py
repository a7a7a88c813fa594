"""Models of Hugging Face's transformers, from a configuration: no weights, and no code but that of transformers."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch

from gpuwise.graph.models.libraries import library, nearest
from gpuwise.graph.ops import GraphError
from gpuwise.graph.torch.prepare import in_one_line
from gpuwise.graph.torch.trace import Built

if TYPE_CHECKING:
    from gpuwise.graph.models.by_name import ModelSpec

SEQUENCE = 128
TASKS = ("FOR_CAUSAL_LM_", "FOR_MASKED_LM_", "FOR_SEQ_TO_SEQ_CAUSAL_LM_", "FOR_IMAGE_CLASSIFICATION_", "")
SAMPLES = 16_000
"""A second of speech."""
PATIENCE_S = 3.0
"""How long the hub may take to answer; transformers itself tries for half a minute."""
_CHECKPOINT = re.compile(r"\[([\w.\-]+/[\w.\-]+)\]")


def from_hugging_face(spec: ModelSpec, name: str) -> Callable[[], Built]:
    """The model of a configuration: a config.json here, or a name that transformers finds."""
    transformers = library("transformers")
    config, notes = configuration(transformers, name)
    try:
        kind = _architecture(transformers, config)
    except ImportError as error:
        raise GraphError(f"{name}: transformers cannot import the model: {in_one_line(error)}") from error

    def build() -> Built:
        if spec.image and isinstance(getattr(config, "image_size", None), int):
            config.image_size = spec.image
        if hasattr(config, "use_cache"):
            config.use_cache = False  # keys and values are kept for generation, not for training
        return Built(kind(config), (), _example(config, kind, spec), notes=notes)

    return build


def _architecture(transformers: ModuleType, config: Any) -> Any:
    """The class of the model: the one that the configuration names, else by task, else the bare one."""
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


def _example(config: Any, kind: Any, spec: ModelSpec) -> dict[str, Any]:
    """Inputs of the kind that the model takes, with labels, so that it returns its own loss."""
    main = getattr(kind, "main_input_name", "input_ids")
    if main == "pixel_values":
        return _image(config, spec) | (_classes(spec) if "Classification" in kind.__name__ else {})
    if main == "input_features":  # spectrograms, of Whisper's length
        steps = 2 * getattr(config, "max_source_positions", 1500)
        given = {main: torch.empty(spec.batch, getattr(config, "num_mel_bins", 80), steps)}
    elif main == "input_values":
        given = {main: torch.empty(spec.batch, spec.sequence or SAMPLES)}
    else:
        given = {"input_ids": _tokens(config, spec)}
    if getattr(config, "vision_config", None) is not None and main == "input_ids":
        given |= _image(config.vision_config, spec)
    if getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = _tokens(config, spec)
    return given | _labels(kind.__name__, given, spec)


def _labels(kind: str, given: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    if "LM" in kind or "ConditionalGeneration" in kind:
        return {"labels": given.get("decoder_input_ids", given.get("input_ids"))}
    if "TokenClassification" in kind:
        return {"labels": given["input_ids"]}
    if "QuestionAnswering" in kind:
        position = torch.zeros(spec.batch, dtype=torch.long)
        return {"start_positions": position, "end_positions": position}
    return _classes(spec) if "Classification" in kind else {}


def _classes(spec: ModelSpec) -> dict[str, Any]:
    return {"labels": torch.zeros(spec.batch, dtype=torch.long)}


def _image(config: Any, spec: ModelSpec) -> dict[str, Any]:
    size = spec.image or getattr(config, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
    return {"pixel_values": torch.empty(spec.batch, getattr(config, "num_channels", 3), height, width)}


def _tokens(config: Any, spec: ModelSpec) -> torch.Tensor:
    config = getattr(config, "text_config", None) or config
    most = getattr(config, "max_position_embeddings", None)
    most = most if isinstance(most, int) and most > 0 else None
    if most and spec.sequence and spec.sequence > most:
        raise GraphError(f"sequences of {spec.sequence} tokens; the model takes {most} at most")
    return torch.zeros(spec.batch, spec.sequence or min(SEQUENCE, most or SEQUENCE), dtype=torch.long)


def configuration(transformers: ModuleType, name: str) -> tuple[Any, tuple[str, ...]]:
    """The configuration of a config.json, of its folder or of a name, with notes."""
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        return _from_file(transformers, path), ()
    with suppress(Exception):  # already downloaded: no network needed
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=True), ()
    try:
        _reach_hub()
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=False), ()
    except Exception as error:
        alike = _defaults(transformers, name)
        if alike is not None:
            return alike, (f"the configuration of {name} could not be downloaded; transformers' defaults are used",)
        raise GraphError(
            f"no configuration for {name!r}: it is neither a config.json here nor found by transformers "
            f"({in_one_line(error)})"
        ) from error


def _from_file(transformers: ModuleType, path: Path) -> Any:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GraphError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise GraphError(f"{path}: not a configuration that can be read: {in_one_line(error)}") from error
    if not isinstance(entries, Mapping) or not isinstance(entries.get("model_type"), str):
        raise GraphError(f"{path}: no key 'model_type', so it is not a Hugging Face model configuration")
    kind = entries["model_type"]
    known = transformers.CONFIG_MAPPING.keys()
    if kind not in known:
        raise GraphError(f"{path}: transformers has no model of type {kind!r}{nearest(kind, known)}")
    try:
        return transformers.AutoConfig.for_model(**entries)
    except Exception as error:
        raise GraphError(f"{path}: a configuration that transformers refuses: {in_one_line(error)}") from error


def _reach_hub() -> None:
    """Fails fast where the hub cannot be reached; a proxy is left to transformers."""
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if not any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        socket.create_connection((hub.hostname or "", hub.port or 443), timeout=PATIENCE_S).close()


def _defaults(transformers: ModuleType, name: str) -> Any:
    """The defaults of a model type that its documentation gives for a name such as ``bert-base-uncased``."""
    for kind in _kinds_like(transformers, name):
        with suppress(Exception):
            made = transformers.CONFIG_MAPPING[kind]
            named = _CHECKPOINT.findall(made.__doc__ or "")
            if any(name in (checkpoint, checkpoint.partition("/")[2]) for checkpoint in named):
                return made()
    return None


def _kinds_like(transformers: ModuleType, name: str) -> Iterator[str]:
    """Model types whose names are part of a name, longest first; importing all of them takes seconds."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    found = [kind for kind in transformers.CONFIG_MAPPING if re.sub(r"[^a-z0-9]", "", kind.lower()) in plain]
    yield from sorted(found, key=len, reverse=True)
