"""A training run as its loop sees it, and attaching one to its controller and its checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakSet

from gpuwise.sdk.agreement import Agreement
from gpuwise.sdk.boundary import Boundary, Follower, Leader, Pauses
from gpuwise.sdk.checkpoints import Checkpoints
from gpuwise.sdk.environment import Environment, read_environment
from gpuwise.sdk.files import write_json
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.progress import Progress
from gpuwise.sdk.requests import CHECKPOINT, Requests, SignalHandlers
from gpuwise.sdk.saver import Every, Saver

logger = logging.getLogger("gpuwise.sdk")

DEFAULT_EVERY_S = 600.0
SaveOrLoad = Callable[[Path], object]


class Job:
    """A training run: its progress, where it runs, and its loop. `attach` makes it."""

    step: int
    """Steps done, those before the job was resumed included."""
    resumed: bool
    """Whether it continues from a checkpoint."""
    can_suspend: bool
    """Whether it can be checkpointed, release its GPUs, and resume later, elsewhere, or on another number of them."""
    rank: int
    """Which of the job's processes this is, from 0."""
    world_size: int
    """The number of processes of the job."""
    gpus: int
    """The number of GPUs of all processes together; without a controller, that of processes."""

    def __init__(
        self,
        environment: Environment,
        messages: Messages,
        progress: Progress,
        requests: Requests,
        boundary: Boundary | None,
        resumed_at: int | None,
    ) -> None:
        self.step, self.resumed = resumed_at or 0, resumed_at is not None
        self.can_suspend = boundary is not None
        self.rank, self.world_size, self.gpus = environment.rank, environment.world_size, environment.gpus
        self._environment = environment
        self._messages = messages
        self._progress = progress
        self._requests = requests
        self._boundary = boundary
        self._signals = SignalHandlers(requests.ask) if boundary is not None and not environment.controlled else None
        _attached.add(self)

    def steps(
        self,
        total: int | None = None,
        *,
        checkpoint_every_s: float | None = DEFAULT_EVERY_S,
        checkpoint_every_steps: int | None = None,
    ) -> Iterator[int]:
        """The steps still to do, counted from 0 over the whole training; without ``total``, until the loop is left.

        Between two steps the job is saved if that was requested or is due, and `Leave` is raised if it has to leave.
        """
        return self._steps(total, Every(checkpoint_every_s, checkpoint_every_steps).check())

    def report(self, loss: Any = None, samples: Any = None) -> None:
        """Reports the step: its loss, and the number of samples it used, over all processes.

        A tensor on a GPU is fine: it is read only when a message is sent, five times a second at most.
        """
        self._progress.report(loss, samples)

    def request_checkpoint(self) -> None:
        """Asks for a checkpoint before the next step."""
        self._requests.ask(CHECKPOINT)

    def _steps(self, total: int | None, every: Every) -> Iterator[int]:
        self._begin(total, every)
        try:
            now_s = monotonic()
            while total is None or self.step < total:
                if self._boundary is not None:
                    self._boundary.at(self.step, now_s)
                yield self.step
                self.step += 1
                now_s = self._progress.step_done(self.step)
            if self._boundary is not None:
                self._boundary.end(self.step)
            self._progress.end(self.step)
            self._messages.send("done", step=self.step)
        finally:
            self._progress.end(self.step)
            self._messages.close()
            if self._signals is not None:
                self._signals.restore()

    def _begin(self, total: int | None, every: Every) -> None:
        about = {"can_suspend": self.can_suspend, "can_pause": self.can_suspend, "steps": total}
        if self._environment.attempt_dir is not None and self.rank == 0:
            with suppress(OSError):
                write_json(self._environment.attempt_dir / "sdk.json", about)
        self._messages.send("hello", **about)
        self._progress.begin(self.step, total)
        if self._boundary is not None:
            self._boundary.begin(self.step, total, every)
        if self._signals is not None:
            self._signals.install()

    def _disown(self) -> None:
        self._boundary = None
        self._messages.mute = True
        self._messages.close()


_attached: WeakSet[Job] = WeakSet()


def _forked() -> None:
    """A forked process, such as a worker of a data loader, is not the one that trains."""
    for job in _attached:
        job._disown()


os.register_at_fork(after_in_child=_forked)


def attach(
    save: SaveOrLoad | None = None,
    load: SaveOrLoad | None = None,
    *,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    keep: int = 2,
) -> Job:
    """Attaches a training script, which then reports progress, saves on request, and resumes where it was.

    ``save(path)`` writes the state of the training to a file or folder at ``path``, ``load(path)`` reads it. If there
    is a checkpoint, it is loaded at once, on every rank. Checkpoints are in $GPUWISE_CHECKPOINT_DIR, which the
    controller sets, else in ``checkpoint_dir``; without either, none are made. The ``keep`` newest are kept.
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
        logger.warning("gpuwise: ignored damaged checkpoints: %s", ", ".join(checkpoints.damaged))
    if newest is None:
        return None
    load(newest.state)
    return newest.step
