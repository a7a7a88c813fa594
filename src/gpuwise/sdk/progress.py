"""The progress and speed of the training, reported to the controller at intervals."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

from gpuwise.sdk.messages import Messages

EVERY_S = 0.2


class Progress:
    """Counts steps and samples, and sends them at most every `EVERY_S` seconds; the first and the last always."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._loss: Any = None
        self._samples: Any = None
        self._reported = False
        self._steps: int | None = None
        self._sent_step = 0
        self._sent_s = self._due_s = 0.0

    def begin(self, step: int, steps: int | None) -> None:
        """Starts counting at a step; the end of the next one is sent."""
        self._steps, self._sent_step = steps, step
        self._sent_s, self._due_s = monotonic(), math.inf if self._messages.mute else 0.0
        self._samples, self._reported = None, False

    def report(self, loss: Any, samples: Any) -> None:
        """Keeps what was reported of a step. A tensor is only detached: reading it would wait for the GPU."""
        self._reported = True
        if loss is not None:
            self._loss = loss.detach() if hasattr(loss, "detach") else loss
        if samples is not None:
            self._samples = samples if self._samples is None else self._samples + samples

    def step_done(self, step: int) -> float:
        """Counts a step, sends it if that is due, and returns the time."""
        self._reported = False
        now_s = monotonic()
        if now_s >= self._due_s:
            self._send(step, now_s)
        return now_s

    def end(self, step: int) -> None:
        """Sends the last step, unless it was sent; a step that was reported counts, even if the loop was left in it."""
        step += self._reported
        if step != self._sent_step and not self._messages.mute:
            self._send(step, monotonic())

    def leave_out(self, seconds: float) -> None:
        """Leaves out time that was not spent on steps: checkpoints and pauses."""
        self._sent_s += seconds

    def _send(self, step: int, now_s: float) -> None:
        steps, elapsed_s = step - self._sent_step, now_s - self._sent_s
        samples = as_number(self._samples)
        self._messages.send(
            "progress",
            step=step,
            steps=self._steps,
            loss=as_number(self._loss),
            samples_per_s=samples / elapsed_s if samples is not None and elapsed_s > 0 else None,
            step_s=elapsed_s / steps if steps > 0 and elapsed_s > 0 else None,
        )
        self._sent_step, self._sent_s, self._due_s = step, now_s, now_s + EVERY_S
        self._samples = None


def as_number(value: Any) -> float | None:
    """A loss of any library as a plain number; None if it is not a finite number."""
    try:
        item = getattr(value, "item", None)
        number = float(item() if callable(item) else value)
    except Exception:  # a loss that cannot be shown must not end the training
        return None
    return number if math.isfinite(number) else None
