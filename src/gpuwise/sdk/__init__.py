"""For training scripts: progress, checkpoints on request, resuming and resizing in three lines.

    from gpuwise import sdk

    job = sdk.attach(save=save, load=load)
    for step in job.steps(1000):
        loss = train(step)
        job.report(loss=loss, samples=64)

It needs the standard library only, and works the same without a controller. `sdk.torch` has helpers for PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuwise.sdk.boundary import Leave
from gpuwise.sdk.checkpoints import CheckpointError
from gpuwise.sdk.job import Job, attach

if TYPE_CHECKING:
    import gpuwise.sdk.torch as torch

__all__ = ["CheckpointError", "Job", "Leave", "attach", "torch"]


def __getattr__(name: str) -> Any:
    """Imports the helpers for PyTorch when they are first used."""
    if name == "torch":
        return import_module("gpuwise.sdk.torch")
    raise AttributeError(f"module 'gpuwise.sdk' has no attribute {name!r}")
