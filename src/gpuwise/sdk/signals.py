"""Signals as requests, for training without a controller: SIGTERM to leave, SIGUSR1 for a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from time import monotonic
from types import FrameType

from gpuwise.sdk.requests import CHECKPOINT, LEAVE

MEANING = {signal.SIGTERM: LEAVE, signal.SIGUSR1: CHECKPOINT}
ONE_REQUEST_S = 1.0
"""SIGTERMs within this time are one: timeout(1) and others signal a process and then its group."""


class Signals:
    """Takes over the signals nobody handles yet, from `install` to `restore`.

    The first SIGTERM is a request; a later one ends the process as it does without a handler.
    """

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._taken: set[signal.Signals] = set()
        self._terminated_s: float | None = None

    def install(self) -> None:
        """Takes over; does nothing outside the main thread, where Python does not allow it."""
        if not _in_main_thread():
            return
        for number in MEANING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._received)
                self._taken.add(number)
        _installed.add(self)

    def restore(self) -> None:
        """Gives back what was taken and is still ours."""
        if not _in_main_thread():
            return
        for number in self._taken:
            if signal.getsignal(number) == self._received:
                signal.signal(number, signal.SIG_DFL)
        self._taken.clear()
        _installed.discard(self)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self._is_impatient(monotonic()):
            self.restore()
            os.kill(os.getpid(), number)
        self._ask(MEANING[signal.Signals(number)])

    def _is_impatient(self, now_s: float) -> bool:
        if self._terminated_s is None:
            self._terminated_s = now_s
        return now_s - self._terminated_s > ONE_REQUEST_S


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


_installed: set[Signals] = set()
_forking = threading.local()


def _before_fork() -> None:
    """A forked process, a data loader's worker say, must die of SIGTERM, from its first moment on.

    Until it has its handlers back the signals are held up: Python forgets those that come in between.
    """
    if _installed:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, MEANING)


def _after_fork_in_child() -> None:
    for each in list(_installed):
        each.restore()
    _after_fork()


def _after_fork() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child, after_in_parent=_after_fork)
