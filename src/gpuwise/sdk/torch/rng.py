"""The state of the random number generators that training draws from: torch's, CUDA's, numpy's, Python's."""

from __future__ import annotations

import random
import sys
from importlib import import_module
from typing import Any

import torch


def rng_state() -> dict[str, Any]:
    """The state of all of them as plain values and tensors; numpy's if the script uses it."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if generators := torch.cuda.default_generators:  # none as long as CUDA is not used
        state["cuda"] = [generator.get_state() for generator in generators]
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def restore_rng(state: dict[str, Any], rank: int) -> None:
    """Puts the generators back. Only rank 0 was saved; the others get numbers of their own, derived from its state."""
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
