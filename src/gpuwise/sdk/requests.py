"""Requests to a job at a step boundary: by the controller in a file, by the script itself, or by signals.

Signals are for training without a controller: SIGTERM asks to leave, SIGUSR1 for a checkpoint.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import NamedTuple

from gpuwise.sdk.files import WatchedFile

RUN, CHECKPOINT, LEAVE, PAUSE = "run", "checkpoint", "leave", "pause"
SIGNALS = {signal.SIGTERM: LEAVE, signal.SIGUSR1: CHECKPOINT}
ONE_REQUEST_S = 1.0
"""SIGTERMs within this time are one: timeout(1) and others signal a process and then its group."""


class Request(NamedTuple):
    """To checkpoint and continue, to checkpoint and leave, to pause, or just to run."""

    want: str
    seq: int | None = None
    """The controller's number for it; None if it comes from a signal or the script."""


class Requests:
    """The newest request that was not taken yet."""

    def __init__(self, attempt_dir: Path | None) -> None:
        self._asked: Request | None = None
        self._control = None if attempt_dir is None else WatchedFile(attempt_dir / "control.json")
        self._seq: int | None = None

    def ask(self, want: str) -> None:
        """Asks from within the process; safe in a signal handler. A checkpoint does not replace a request to leave."""
        if self._asked is None or self._asked.want != LEAVE:
            self._asked = Request(want)

    def take(self) -> Request | None:
        """The new request; None if there is none."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            return asked
        return self.from_controller()

    def from_controller(self) -> Request | None:
        """The controller's new request; None if there is none."""
        return None if self._control is None else self._numbered(self._control.content())

    def _numbered(self, content: dict[str, object]) -> Request | None:
        """A request with a new number; anything else is ignored."""
        seq, want = content.get("seq"), content.get("want")
        if seq == self._seq or type(seq) is not int or want not in (RUN, CHECKPOINT, LEAVE, PAUSE):
            return None
        self._seq = seq
        return Request(str(want), seq)


class SignalHandlers:
    """Handles the signals that have no handler yet, from `install` to `restore`.

    The first SIGTERM is a request; a later one ends the process as it does without a handler.
    """

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._handled: set[signal.Signals] = set()
        self._terminated_s: float | None = None

    def install(self) -> None:
        """Installs the handlers; does nothing outside the main thread, where Python does not allow it."""
        if not _in_main_thread():
            return
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._received)
                self._handled.add(number)
        _installed.add(self)

    def restore(self) -> None:
        """Removes the handlers that are still ours."""
        if not _in_main_thread():
            return
        for number in self._handled:
            if signal.getsignal(number) == self._received:
                signal.signal(number, signal.SIG_DFL)
        self._handled.clear()
        _installed.discard(self)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self._is_repeated(monotonic()):
            self.restore()
            os.kill(os.getpid(), number)
        self._ask(SIGNALS[signal.Signals(number)])

    def _is_repeated(self, now_s: float) -> bool:
        if self._terminated_s is None:
            self._terminated_s = now_s
        return now_s - self._terminated_s > ONE_REQUEST_S


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


_installed: set[SignalHandlers] = set()
_forking = threading.local()


def _before_fork() -> None:
    """A forked process, such as a worker of a data loader, must end on SIGTERM from its first moment on.

    The signals are blocked until its handlers are removed: Python loses those that arrive in between.
    """
    if _installed:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _after_fork_in_child() -> None:
    for each in list(_installed):
        each.restore()
    _after_fork()


def _after_fork() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child, after_in_parent=_after_fork)
