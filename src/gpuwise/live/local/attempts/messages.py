"""Small messages from jobs and supervisors, of which none is trusted before it is checked."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwise.live.local.attempts.folders import finite, text, whole

log = logging.getLogger(__name__)

PROTOCOL = 1
"""What messages must say as ``v``; jobs and supervisors of an earlier version that say so are understood."""
MAX_BYTES = 4096
MAX_A_POLL = 256
"""Messages taken in at one time, so that a flood does not keep the controller from its work."""
BUFFER_BYTES = 1 << 20
UNKNOWN = float("nan")
NOTICES = frozenset(("started", "obeyed", "exited", "paused", "resumed"))
"""Of supervisors the first three, of jobs the others. What else jobs send is in their files, too."""


@dataclass(frozen=True, slots=True)
class Message:
    """What every message says: which attempt of which job it comes from."""

    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Progressed(Message):
    """How far a job is; None is unknown."""

    step: float
    steps: float | None
    loss: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class Notice(Message):
    """Something is new in the folder of an attempt."""

    kind: str
    seq: int


@dataclass(frozen=True, slots=True)
class OtherProtocol(Message):
    """A job or supervisor of another version, whose messages may mean anything."""

    version: str


TokenOf = Callable[[str, int], str]
"""The token of an attempt of a job."""


def parse(data: bytes, token_of: TokenOf) -> Message | None:
    """The message in a datagram; None for what is none, or does not come from the attempt it names."""
    if len(data) > MAX_BYTES:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    uid, attempt, token = text(found, "job"), whole(found, "attempt", -1), text(found, "token")
    if not uid or len(uid) > 64 or not 0 < attempt < 2**31 or not token.isascii() or not uid.isascii():
        return None
    if not hmac.compare_digest(token, token_of(uid, attempt)):
        return None
    if (version := found.get("v")) != PROTOCOL:
        return OtherProtocol(uid, attempt, repr(version)[:40])
    kind = text(found, "kind")
    if kind == "progress":
        return _progressed(uid, attempt, found)
    return Notice(uid, attempt, kind, whole(found, "seq")) if kind in NOTICES else None


def _progressed(uid: str, attempt: int, found: Mapping[str, Any]) -> Progressed | None:
    step = _number(found, "step")
    if step is None or step < 0:
        return None
    numbers = (_number(found, name) for name in ("steps", "loss", "samples_per_s"))
    return Progressed(uid, attempt, step, *numbers)


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = finite(found, name, UNKNOWN)
    return value if value == value else None


class MessageSocket:
    """A datagram socket that only its owner may write to, or every account on this machine.

    Messages say which attempt they are from, and prove it by its token, which only the attempt's account can read.
    """

    def __init__(self, path: Path, token_of: TokenOf, *, for_all: bool = False) -> None:
        self.path = path
        self._token_of = token_of
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._inode = _bind(self._socket, path, 0o666 if for_all else 0o600)
        self._refused: set[tuple[str, int]] = set()
        """Attempts of which it was logged that their messages are not understood."""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def take(self) -> list[Message]:
        """The messages that have arrived; many of them are left for the next time."""
        found = []
        for _ in range(MAX_A_POLL):
            try:
                data = self._socket.recv(MAX_BYTES + 1)
            except OSError:
                break
            message = parse(data, self._token_of)
            if isinstance(message, OtherProtocol):
                self._refuse(message)
            elif message is not None:
                found.append(message)
        return found

    def _refuse(self, message: OtherProtocol) -> None:
        """Logs once per attempt that it is not understood."""
        if (message.uid, message.attempt) not in self._refused:
            self._refused.add((message.uid, message.attempt))
            log.error(
                "job %s, attempt %d: its messages are of protocol %s and this service understands %d; its progress is "
                "not seen. Install the same version of gpuwise for jobs and service",
                message.uid, message.attempt, message.version, PROTOCOL,
            )  # fmt: skip

    def close(self) -> None:
        """Receives nothing more; another socket that was bound in its place is left alone."""
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()


def _bind(box: socket.socket, path: Path, mode: int) -> int:
    """Binds to a path that may be longer than an address can be; what was there is replaced. The socket's inode."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        fresh = f".{path.name}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        box.bind(f"/proc/self/fd/{folder}/{fresh}")
        os.chmod(fresh, mode, dir_fd=folder)
        os.rename(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        return os.stat(path.name, dir_fd=folder).st_ino
    finally:
        os.close(folder)
