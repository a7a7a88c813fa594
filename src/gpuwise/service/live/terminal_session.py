"""The client's side of an interactive job: this process's input and output, joined to the job's."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuwise.live.local.supervisor.processes import boot_id
from gpuwise.live.local.supervisor.terminal import PIECE_BYTES, PIPE, WINDOW, frame, take_frames

__all__ = ["Session", "boot_id", "connect", "has_terminal", "kind_of_terminal"]

TARGETS = {b"O": 1, b"R": 2}
TWICE_S = 1.0
"""Two Ctrl-C within this time end the session, where the job does not end at the first."""


def has_terminal() -> bool:
    """Whether a user sits in front of this process."""
    return os.isatty(0) and os.isatty(1)


def kind_of_terminal() -> str:
    """What a job needs so that it can be used from here."""
    if not has_terminal():
        return PIPE
    columns, rows = os.get_terminal_size(0)
    return f"pty:{min(rows, 9999) or 24}x{min(columns, 9999) or 80}"


def connect(path: str) -> socket.socket:
    """A connection to a job's terminal; its path may be longer than an address can be."""
    folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
    except OSError:
        client.close()
        raise
    finally:
        os.close(folder)
    return client


class Session:
    """Carries input, signals and the size of the window to a job, and its output here, until either side is gone."""

    def __init__(self, job: socket.socket) -> None:
        self._job = job
        self._is_pty = has_terminal()
        self._to_job, self._received = bytearray(), bytearray()
        self._reads_input = True
        self._interrupted_s = -TWICE_S

    def run(self) -> None:
        """Until the job has closed its side; raises `KeyboardInterrupt` at two Ctrl-C in a row."""
        self._job.setblocking(False)
        with ExitStack() as restored:
            wakeups = restored.enter_context(_signals_as_bytes(signal.SIGWINCH, signal.SIGINT))
            if self._is_pty:
                restored.enter_context(_raw())
                self._send_size()
            while self._turn(wakeups):
                pass

    def _turn(self, wakeups: int) -> bool:
        """Carries on what there is; whether the job is still there."""
        reads: list[socket.socket | int] = [self._job, wakeups]
        if self._reads_input and len(self._to_job) < PIECE_BYTES:
            reads.append(0)
        ready, writable, _ = select.select(reads, [self._job] if self._to_job else [], [])
        if wakeups in ready:
            for which in os.read(wakeups, 64):
                self._notice(which)
        if 0 in ready:
            self._read_input()
        if writable:
            self._send()
        return self._job not in ready or self._receive()

    def _notice(self, which: int) -> None:
        if which == signal.SIGWINCH and self._is_pty:
            self._send_size()
        elif which == signal.SIGINT:
            if time.monotonic() - self._interrupted_s < TWICE_S:
                raise KeyboardInterrupt
            self._interrupted_s = time.monotonic()
            self._to_job += frame(b"S", bytes([signal.SIGINT]))

    def _send_size(self) -> None:
        columns, rows = os.get_terminal_size(0)
        self._to_job += frame(b"W", WINDOW.pack(rows, columns))

    def _read_input(self) -> None:
        try:
            piece = os.read(0, PIECE_BYTES)
        except OSError:
            piece = b""
        self._reads_input = bool(piece)
        self._to_job += frame(b"I", piece) if piece else frame(b"E")

    def _send(self) -> None:
        try:
            del self._to_job[: self._job.send(self._to_job)]
        except (BrokenPipeError, ConnectionResetError):  # the job has ended; its last output is still to be received
            self._to_job.clear()
            self._reads_input = False

    def _receive(self) -> bool:
        try:
            piece = self._job.recv(PIECE_BYTES)
        except ConnectionResetError:
            return False
        self._received += piece
        for kind, content in take_frames(self._received):
            _write(TARGETS[kind], content)
        return bool(piece)


def _write(handle: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


@contextmanager
def _raw() -> Iterator[None]:
    """Passes every key on as it is pressed."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is kept
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _signals_as_bytes(*which: signal.Signals) -> Iterator[int]:
    """A pipe that gets the number of each of these signals, in place of what they do otherwise."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    sys.stdout.flush()
    before = {each: signal.signal(each, lambda *_: None) for each in which}
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(earlier)
        for each, handler in before.items():
            signal.signal(each, handler)
        os.close(reader)
        os.close(writer)
