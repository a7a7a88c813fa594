"""Saves at step boundaries, on request and at intervals; after a save that failed the training continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from gpuwise.sdk.checkpoints import Checkpoints
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.progress import Progress

logger = logging.getLogger("gpuwise.sdk")


class Every(NamedTuple):
    """How often to save without a request; None is never."""

    seconds: float | None
    steps: int | None

    def check(self) -> Every:
        """Itself, if the values are valid."""
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"checkpoint_every_s is {self.seconds}; it must be above 0, or None for never")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"checkpoint_every_steps is {self.steps}; it must be 1 or more, or None for never")
        return self


class Saver:
    """Makes a job's checkpoints, on rank 0."""

    def __init__(
        self, checkpoints: Checkpoints, save: Callable[[Path], object], messages: Messages, progress: Progress
    ) -> None:
        self.steps: int | None = None
        self._checkpoints = checkpoints
        self._save = save
        self._messages = messages
        self._progress = progress
        self._every = Every(None, None)
        self._saved_s = 0.0
        self._saved_step = 0

    def begin(self, step: int, steps: int | None, every: Every) -> None:
        """Starts a loop at a step, which counts as saved: it is in the checkpoint it came from, or is the start."""
        self.steps, self._every = steps, every
        self._saved_s, self._saved_step = monotonic(), step

    def save_if_due(self, step: int, now_s: float) -> None:
        """Saves if a checkpoint is due."""
        every_s, every_steps = self._every
        by_time = every_s is not None and now_s - self._saved_s >= every_s
        by_steps = every_steps is not None and step % every_steps == 0
        if (by_time or by_steps) and step != self._saved_step:
            self.save(step)

    def save_at_end(self, step: int) -> None:
        """Saves the end of the loop, so that a restarted script finds it done."""
        if self._every != (None, None) and step != self._saved_step:
            self.save(step)

    def save(self, step: int, seq: int | None = None) -> bool:
        """Makes a checkpoint; whether that succeeded."""
        began_s = monotonic()
        try:
            self._checkpoints.save(self._save, step, self.steps)
        except Exception as error:
            self.failed(step, seq, error)
            return False
        finally:
            self._saved_s = monotonic()
            self._progress.leave_out(self._saved_s - began_s)
        self._saved_step = step
        self._messages.send("saved", step=step, seq=seq)
        return True

    def failed(self, step: int, seq: int | None, error: Exception) -> None:
        """Reports to the log and the controller that the job could not be saved."""
        logger.error("gpuwise: the job could not be saved at step %d; it continues", step, exc_info=error)
        self._messages.send("save_failed", step=step, seq=seq, error=f"{type(error).__name__}: {error}"[:500])
