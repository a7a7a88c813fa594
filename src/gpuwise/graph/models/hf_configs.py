"""Configurations of Hugging Face's models: a file here, or a name that was fetched before or can be now."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from gpuwise.graph.models.libraries import nearest
from gpuwise.graph.ops import GraphError
from gpuwise.graph.torch.state import in_one_line

PATIENCE_S = 3.0
"""How long the hub may take to answer at all; transformers itself tries for half a minute."""
_CHECKPOINT = re.compile(r"\[([\w.\-]+/[\w.\-]+)\]")


def configuration(transformers: ModuleType, name: str) -> tuple[Any, tuple[str, ...]]:
    """The configuration of a config.json, of its folder or of a name, and what is to be said of it."""
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        return _from_file(transformers, path), ()
    with suppress(Exception):  # without the network, if it was fetched before
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=True), ()
    try:
        _reach_hub()
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=False), ()
    except Exception as error:
        alike = _defaults(transformers, name)
        if alike is not None:
            return alike, (f"the configuration of {name} could not be fetched; transformers' own defaults are like it",)
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
    """Fails soon where there is no way to the hub; a proxy is left to transformers."""
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if not any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        socket.create_connection((hub.hostname or "", hub.port or 443), timeout=PATIENCE_S).close()


def _defaults(transformers: ModuleType, name: str) -> Any:
    """The defaults of the model type that are, by its documentation, those of a name such as ``bert-base-uncased``."""
    for kind in _kinds_like(transformers, name):
        with suppress(Exception):
            made = transformers.CONFIG_MAPPING[kind]
            named = _CHECKPOINT.findall(made.__doc__ or "")
            if any(name in (checkpoint, checkpoint.partition("/")[2]) for checkpoint in named):
                return made()
    return None


def _kinds_like(transformers: ModuleType, name: str) -> Iterator[str]:
    """Model types whose names are in a name, longest first; importing all of them takes seconds."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    found = [kind for kind in transformers.CONFIG_MAPPING if re.sub(r"[^a-z0-9]", "", kind.lower()) in plain]
    yield from sorted(found, key=len, reverse=True)
