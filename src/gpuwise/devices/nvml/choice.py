"""Which of a machine's GPUs are managed: those its user names, else those of CUDA_VISIBLE_DEVICES, else all."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpuwise.devices.machine import MachineError
from gpuwise.devices.nvml.gpu import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"


def choose(gpus: Sequence[Gpu], named: Sequence[str] | None) -> tuple[list[Gpu], list[str]]:
    """The GPUs to manage in the order of the driver, and notes about those that are left out."""
    if named is not None:
        return _in_order(gpus, [_named(gpus, word) for word in named]), []
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return list(gpus), []
    kept = _in_order(gpus, _visible(gpus, visible))
    note = f"{VISIBLE} is {visible!r}: {len(kept)} of {len(gpus)} GPUs are managed"
    return kept, [] if len(kept) == len(gpus) else [note]


def _named(gpus: Sequence[Gpu], word: str) -> Gpu:
    """The one GPU that an index or UUID means."""
    found = _matches(gpus, word)
    if len(found) == 1:
        return found[0]
    here = ", ".join(f"{gpu.index} ({gpu.device.uuid})" for gpu in gpus) or "none"
    trouble = "there is no such GPU" if not found else f"{len(found)} GPUs begin so"
    raise MachineError(f"--gpus {word}: {trouble}; give indexes or UUIDs of those here: {here}")


def _visible(gpus: Sequence[Gpu], text: str) -> list[Gpu]:
    """As CUDA reads it: up to the first word that means no GPU. A MIG slice alone is not managed."""
    found: list[Gpu] = []
    for word in text.split(","):
        matches = _matches(gpus, word.strip())
        if len(matches) != 1:
            break
        found += matches
    return found


def _matches(gpus: Sequence[Gpu], word: str) -> list[Gpu]:
    """The GPUs with an index, or whose UUID begins so."""
    if word.isascii() and word.isdigit():
        return [gpu for gpu in gpus if gpu.index == int(word)]
    return [gpu for gpu in gpus if word.startswith("GPU-") and gpu.device.uuid.startswith(word)]


def _in_order(gpus: Sequence[Gpu], chosen: Sequence[Gpu]) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu in chosen]
