"""The environment variables that describe a process, set by the controller or by a launcher such as torchrun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Environment(NamedTuple):
    """A process's job, its rank in it, and how it reaches the controller."""

    job: str
    attempt: int
    token: str
    socket: str
    """Where messages go; empty if there is no controller."""
    attempt_dir: Path | None
    """Where the controller writes requests; None if there is no controller."""
    checkpoint_dir: Path | None
    gpus: int
    rank: int
    world_size: int

    @property
    def controlled(self) -> bool:
        """Whether a controller started this process."""
        return self.attempt_dir is not None


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment:
    """Reads the variables a controller or launcher sets; without them this is rank 0 of one process."""
    rank, world_size = _integer(environ, "RANK", 0), _integer(environ, "WORLD_SIZE", 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"RANK is {rank} and WORLD_SIZE is {world_size}; ranks go from 0 to WORLD_SIZE - 1")
    return Environment(
        job=environ.get("GPUWISE_JOB_ID", ""),
        attempt=_integer(environ, "GPUWISE_ATTEMPT", 0),
        token=environ.get("GPUWISE_TOKEN", ""),
        socket=environ.get("GPUWISE_SOCKET", ""),
        attempt_dir=_folder(environ, "GPUWISE_ATTEMPT_DIR"),
        checkpoint_dir=_folder(environ, "GPUWISE_CHECKPOINT_DIR"),
        gpus=_integer(environ, "GPUWISE_GPUS", world_size),
        rank=rank,
        world_size=world_size,
    )


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be a whole number") from None


def _folder(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "")
    return Path(text) if text else None
