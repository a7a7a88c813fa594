"""A training run as its loop sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Any
from weakref import WeakSet

from gpuwise.sdk.boundary import Boundary
from gpuwise.sdk.environment import Environment
from gpuwise.sdk.files import write_json
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.progress import Progress
from gpuwise.sdk.requests import CHECKPOINT, Requests
from gpuwise.sdk.saver import Every
from gpuwise.sdk.signals import Signals

DEFAULT_EVERY_S = 600.0


class Job:
    """A training run: how far it is, where it runs, and its loop. `attach` makes it."""

    step: int
    """Steps done, those before the job was resumed included."""
    resumed: bool
    """Whether it goes on from a checkpoint."""
    can_suspend: bool
    """Whether it can be saved, leave its GPUs, and go on later, elsewhere, or on another number of them."""
    rank: int
    """Which of the job's processes this is, from 0."""
    world_size: int
    """How many processes the job has."""
    gpus: int
    """How many GPUs the job has, all processes together; without a controller, as many as processes."""

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
        self._signals = Signals(requests.ask) if boundary is not None and not environment.controlled else None
        _attached.add(self)

    def steps(
        self,
        total: int | None = None,
        *,
        checkpoint_every_s: float | None = DEFAULT_EVERY_S,
        checkpoint_every_steps: int | None = None,
    ) -> Iterator[int]:
        """The steps still to do, counted from 0 over the whole training; without ``total``, until the loop is left.

        Between two steps the job is saved if that was asked for or is due, and `Leave` is raised if it has to go.
        """
        return self._steps(total, Every(checkpoint_every_s, checkpoint_every_steps).check())

    def report(self, loss: Any = None, samples: Any = None) -> None:
        """Tells how the step went: its loss, and how many samples it took, over all processes.

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
    """A forked process, a data loader's worker say, is not the one that trains."""
    for job in _attached:
        job._disown()


os.register_at_fork(after_in_child=_forked)
