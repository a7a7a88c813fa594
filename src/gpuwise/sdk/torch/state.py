"""Everything a PyTorch training needs to resume exactly where it was, in one file."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.serialization import get_unsafe_globals_in_checkpoint

from gpuwise.sdk.environment import read_environment
from gpuwise.sdk.files import replacing


class Stateful(Protocol):
    """An object that can be saved and loaded in PyTorch's way."""

    def state_dict(self) -> Any:
        """Its state."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Takes a state over."""


class TrainingState:
    """Model, optimizer, random numbers and, where there are, schedule, data position, gradient scaler and more.

    ``extra`` is a dictionary: values with a ``state_dict`` are saved through it, others as they are, and put back into
    the dictionary by `load`. A model in `DistributedDataParallel` or from `torch.compile` is saved as the model within,
    so that the file fits any number of workers.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Stateful | None = None,
        sampler: Stateful | None = None,
        scaler: Stateful | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        parts: dict[str, Stateful | None] = {
            "model": _innermost(model),
            "optimizer": optimizer,
            "scheduler": scheduler,
            "sampler": sampler,
            "scaler": scaler,
            "extra": None if extra is None else _Values(extra),
        }
        self._parts = {name: part for name, part in parts.items() if part is not None}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file atomically, with nothing in it but numbers, texts and tensors."""
        content = {name: part.state_dict() for name, part in self._parts.items()}
        with replacing(Path(path)) as temporary:
            torch.save({**content, "rng": rng_state()}, temporary)
            if foreign := get_unsafe_globals_in_checkpoint(os.fspath(temporary)):
                raise TypeError(
                    f"the training's state contains {', '.join(foreign)}, which could not be loaded safely; "
                    "save plain values and tensors instead"
                )

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restores everything, on the device that the model is on now."""
        content = torch.load(path, map_location="cpu", weights_only=True)
        saved, wanted = set(content) - {"rng"}, set(self._parts)
        if saved != wanted:
            raise ValueError(f"{path} contains {_listed(saved)}; the training has {_listed(wanted)}; they must agree")
        for name, part in self._parts.items():
            part.load_state_dict(content[name])
        restore_rng(content["rng"], read_environment().rank)


class _Values:
    """A dictionary as something that can be saved and loaded."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def state_dict(self) -> dict[str, Any]:
        return {name: v.state_dict() if hasattr(v, "state_dict") else v for name, v in self._values.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, value in state_dict.items():
            part = self._values.get(name)
            if part is not None and hasattr(part, "load_state_dict"):
                part.load_state_dict(value)
            else:
                self._values[name] = value


def _innermost(model: torch.nn.Module) -> torch.nn.Module:
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), torch.nn.Module):
            model = inner
        else:
            return model


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def rng_state() -> dict[str, Any]:
    """The state of the random number generators of torch, CUDA and Python, and of numpy if the script uses it."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if generators := torch.cuda.default_generators:  # none as long as CUDA is not used
        state["cuda"] = [generator.get_state() for generator in generators]
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def restore_rng(state: dict[str, Any], rank: int) -> None:
    """Restores the generators; only rank 0 saves, so the other ranks get numbers derived from its state."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "numpy" in state:
        import_module("numpy").random.set_state(state["numpy"])
    for device, each in enumerate(state.get("cuda", [])):
        if torch.cuda.is_available() and device < torch.cuda.device_count():
            torch.cuda.set_rng_state(each, device)
    if rank > 0:
        _diverge(rank)


def _diverge(rank: int) -> None:
    seed = int(torch.randint(2**62, ()).item()) + rank
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
