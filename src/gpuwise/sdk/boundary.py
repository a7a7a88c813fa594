"""Between two steps: checkpoints, pauses and leaving, on rank 0 and on the others."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from gpuwise.sdk.agreement import Agreement
from gpuwise.sdk.files import write_json
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.progress import Progress
from gpuwise.sdk.requests import CHECKPOINT, LEAVE, PAUSE, Request, Requests
from gpuwise.sdk.saver import Every, Saver

MARGIN_STEPS = 2
POLL_S, PAUSE_POLL_S = 0.01, 0.005
SAVE_TIMEOUT_S = 3600.0
"""How long a rank waits for rank 0 to save; then rank 0 is taken for dead, and the rank continues and fails."""

logger = logging.getLogger("gpuwise.sdk")


class Leave(SystemExit):
    """Raised in the loop when the job is checkpointed and has to leave: ``finally`` blocks run, the exit code is 75."""

    CODE = 75

    def __init__(self, step: int) -> None:
        super().__init__(self.CODE)
        self.step = step


class Boundary(Protocol):
    """What a rank does between two steps."""

    def begin(self, step: int, steps: int | None, every: Every) -> None:
        """Starts a loop at a step."""

    def at(self, step: int, now_s: float) -> None:
        """Acts on requests before this step."""

    def end(self, step: int) -> None:
        """Ends the loop after its last step."""


class Pauses:
    """Pauses rank 0 when the controller asks for it, while other jobs use the same devices in turn."""

    def __init__(self, attempt_dir: Path | None, requests: Requests, messages: Messages, progress: Progress) -> None:
        self._attempt_dir = attempt_dir
        self._requests = requests
        self._messages = messages
        self._progress = progress

    def pause(self, request: Request) -> Request:
        """Reports that the job is paused, and returns the controller's next request.

        If paused.json cannot be written, since the disk is full, the controller stops the process instead.
        """
        began_s = monotonic()
        if self._attempt_dir is not None:
            with suppress(OSError):
                write_json(self._attempt_dir / "paused.json", {"seq": request.seq}, lasting=False)
        self._messages.send("paused", seq=request.seq)
        while (newer := self._requests.from_controller()) is None:
            sleep(PAUSE_POLL_S)
        self._messages.send("resumed", seq=newer.seq)
        self._progress.leave_out(monotonic() - began_s)
        return newer


class Leader:
    """Rank 0: reads requests, saves, and decides when all ranks leave or pause."""

    def __init__(self, requests: Requests, saver: Saver, agreement: Agreement, pauses: Pauses, world_size: int) -> None:
        self._requests = requests
        self._saver = saver
        self._agreement = agreement
        self._pauses = pauses
        self._margin = 0 if world_size == 1 else MARGIN_STEPS
        self._leaving: Request | None = None
        """The request to leave, or to pause, that is agreed on."""
        self._leave_at = 0
        agreement.clear()

    def begin(self, step: int, steps: int | None, every: Every) -> None:
        """Starts counting the time to the next checkpoint."""
        self._saver.begin(step, steps, every)

    def at(self, step: int, now_s: float) -> None:
        """Acts on a request, or saves if a checkpoint is due."""
        request = self._requests.take()
        if request is not None:
            self._answer(request, step)
        elif self._leaving is None:
            self._saver.save_if_due(step, now_s)
        while self._leaving is not None and step >= self._leave_at:
            if self._leaving.want == PAUSE:
                self._pause(self._leaving, step)
            else:
                self._leave(self._leaving, step)

    def end(self, step: int) -> None:
        """Saves the end; a request to leave is void."""
        self._stay()
        self._saver.save_at_end(step)

    def _answer(self, request: Request, step: int) -> None:
        if request.want in (LEAVE, PAUSE):
            self._agree(request, step + self._margin)
        elif request.seq is not None:  # the controller wants something else now
            self._stay()
        if request.want == CHECKPOINT:
            self._saver.save(step, request.seq)

    def _agree(self, request: Request, at_step: int) -> None:
        self._leaving, self._leave_at = request, at_step
        if self._margin == 0 and request.want == PAUSE:
            return  # there is no other rank to agree with, and files cost time at each pause
        try:
            self._agreement.propose(request, at_step)
        except OSError as error:
            self._saver.failed(at_step, request.seq, error)
            self._stay()

    def _pause(self, request: Request, step: int) -> None:
        """Pauses; a request to leave is then met at this step, since no rank is beyond it."""
        newer = self._pauses.pause(request)
        if newer.want in (LEAVE, PAUSE):
            self._agree(newer, step)
        else:
            self._answer(newer, step)

    def _stay(self) -> None:
        self._leaving = None
        self._agreement.withdraw()

    def _leave(self, request: Request, step: int) -> None:
        if self._saver.save(step, request.seq) and self._is_still_to_leave(step):
            try:
                self._agreement.conclude(self._leaving or request, step, self._saver.steps)
            except OSError as error:
                self._saver.failed(step, request.seq, error)
            else:
                raise Leave(step)
        if self._leaving is None or self._leaving.want == LEAVE:  # not if it is to pause instead
            self._stay()

    def _is_still_to_leave(self, step: int) -> bool:
        """Whether the controller has not withdrawn its request while the job was saved."""
        newer = self._requests.take()
        if newer is None or newer.seq is None:
            return True
        if newer.want == LEAVE:
            self._leaving = newer
            return True
        self._answer(newer, step)
        return False


class Follower:
    """The other ranks: leave at the step that rank 0 chose, when it has saved."""

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement
        self._first = 0

    def begin(self, step: int, steps: int | None, every: Every) -> None:
        """Remembers the first step of the loop."""
        self._first = step

    def at(self, step: int, now_s: float) -> None:
        """Leaves if that is agreed on; before the first step is done, the files may be those of an earlier run."""
        if step == self._first:
            return
        while (at_step := self._agreement.at_step) is not None and step >= at_step:
            if self._agreement.concluded:
                raise Leave(step)
            if monotonic() - now_s > SAVE_TIMEOUT_S and not self._agreement.is_pause:
                logger.error(
                    "gpuwise: rank 0 has not saved step %d after %d s; this rank continues", step, SAVE_TIMEOUT_S
                )
                return
            sleep(POLL_S)

    def end(self, step: int) -> None:
        """Nothing: rank 0 saves."""
