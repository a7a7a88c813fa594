"""Attaching a training script to its controller, its checkpoints, or neither."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from gpuwise.sdk.agreement import Agreement
from gpuwise.sdk.boundary import Boundary, Follower, Leader
from gpuwise.sdk.checkpoints import Checkpoints
from gpuwise.sdk.environment import read_environment
from gpuwise.sdk.job import Job
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.pausing import Pauses
from gpuwise.sdk.progress import Progress
from gpuwise.sdk.requests import Requests
from gpuwise.sdk.saver import Saver

logger = logging.getLogger("gpuwise.sdk")

SaveOrLoad = Callable[[Path], object]


def attach(
    save: SaveOrLoad | None = None,
    load: SaveOrLoad | None = None,
    *,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    keep: int = 2,
) -> Job:
    """Attaches a training script: it tells how far it is, saves when asked to, and goes on where it was.

    ``save(path)`` writes the state of the training to a file or folder at ``path``, ``load(path)`` reads it. If there
    is a checkpoint, it is loaded here and now, on every rank. Checkpoints are in $GPUWISE_CHECKPOINT_DIR, which the
    controller sets, else in ``checkpoint_dir``, else nowhere. The ``keep`` newest are kept.
    """
    if (save is None) != (load is None):
        raise ValueError(f"{'load' if load is None else 'save'} is missing; give attach both save and load, or neither")
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least 1 checkpoint must be kept")
    environment = read_environment()
    messages = Messages(environment)
    progress = Progress(messages)
    requests = Requests(environment.attempt_dir)
    folder = environment.checkpoint_dir or (Path(checkpoint_dir) if checkpoint_dir is not None else None)
    boundary: Boundary | None = None
    resumed_at = None
    if save is not None and load is not None and folder is not None:
        checkpoints = Checkpoints(folder, keep)
        agreement = Agreement(environment.attempt_dir or folder)
        if environment.rank == 0:
            saver = Saver(checkpoints, save, messages, progress)
            pauses = Pauses(environment.attempt_dir, requests, messages, progress)
            boundary = Leader(requests, saver, agreement, pauses, environment.world_size)
        else:
            boundary = Follower(agreement)
        resumed_at = _resume(checkpoints, load)
    return Job(environment, messages, progress, requests, boundary, resumed_at)


def _resume(checkpoints: Checkpoints, load: SaveOrLoad) -> int | None:
    newest = checkpoints.newest()
    if checkpoints.damaged:
        logger.warning("gpuwise: passed over damaged checkpoints: %s", ", ".join(checkpoints.damaged))
    if newest is None:
        return None
    load(newest.state)
    return newest.step
