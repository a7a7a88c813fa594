"""The mailbox: small messages from jobs and supervisors, of which none is trusted before it is checked."""

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


@dataclass(frozen=True, slots=True)
class Message:
    """What every message says: which attempt of which job it comes from."""

    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """A job that speaks to us has begun."""

    can_suspend: bool
    steps: float | None


@dataclass(frozen=True, slots=True)
class Progressed(Message):
    """How far a job is; None is unknown."""

    step: float
    steps: float | None
    loss: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class SavedState(Message):
    """A job has a complete checkpoint."""

    step: float


@dataclass(frozen=True, slots=True)
class Done(Message):
    """A job has done its last step."""

    step: float


@dataclass(frozen=True, slots=True)
class Notice(Message):
    """Something is new in the folder of an attempt.

    Supervisors say ``started``, ``obeyed`` and ``exited``, jobs ``paused`` and ``resumed``.
    """

    kind: str
    seq: int


@dataclass(frozen=True, slots=True)
class OtherProtocol(Message):
    """A job or supervisor of another version, whose messages we cannot know the meaning of."""

    version: str


Expected = Callable[[str, int], str]
"""The token of an attempt."""


def parse(data: bytes, expected: Expected) -> Message | None:
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
    if not hmac.compare_digest(token, expected(uid, attempt)):
        return None
    if (version := found.get("v")) != PROTOCOL:
        return OtherProtocol(uid, attempt, repr(version)[:40])
    make = _KINDS.get(text(found, "kind"))
    return make(uid, attempt, found) if make is not None else None


def _hello(uid: str, attempt: int, found: Mapping[str, Any]) -> Hello:
    return Hello(uid, attempt, found.get("can_suspend") is True, _number(found, "steps"))


def _progressed(uid: str, attempt: int, found: Mapping[str, Any]) -> Progressed | None:
    step = _number(found, "step")
    if step is None or step < 0:
        return None
    numbers = (_number(found, name) for name in ("steps", "loss", "samples_per_s"))
    return Progressed(uid, attempt, step, *numbers)


def _saved(uid: str, attempt: int, found: Mapping[str, Any]) -> SavedState | None:
    step = _number(found, "step")
    return SavedState(uid, attempt, step) if step is not None and step >= 0 else None


def _done(uid: str, attempt: int, found: Mapping[str, Any]) -> Done | None:
    step = _number(found, "step")
    return Done(uid, attempt, step) if step is not None and step >= 0 else None


def _notice(uid: str, attempt: int, found: Mapping[str, Any]) -> Notice:
    return Notice(uid, attempt, text(found, "kind"), whole(found, "seq"))


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = finite(found, name, UNKNOWN)
    return value if value == value else None


_KINDS: Mapping[str, Callable[[str, int, Mapping[str, Any]], Message | None]] = {
    "hello": _hello, "progress": _progressed, "saved": _saved, "done": _done,
    "started": _notice, "obeyed": _notice, "exited": _notice, "paused": _notice, "resumed": _notice,
}  # fmt: skip


class Mailbox:
    """A datagram socket in a folder that only its owner may enter."""

    def __init__(self, path: Path, expected: Expected) -> None:
        self.path = path
        self._expected = expected
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._inode = _bind(self._socket, path)
        self._refused: set[tuple[str, int]] = set()
        """Attempts of which it was said that their messages are not understood."""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def take(self) -> list[Message]:
        """The messages that have come; many of them are left for the next time."""
        found = []
        for _ in range(MAX_A_POLL):
            try:
                data = self._socket.recv(MAX_BYTES + 1)
            except OSError:
                break
            message = parse(data, self._expected)
            if isinstance(message, OtherProtocol):
                self._refuse(message)
            elif message is not None:
                found.append(message)
        return found

    def _refuse(self, message: OtherProtocol) -> None:
        """Says once for each attempt that it is not understood."""
        if (message.uid, message.attempt) not in self._refused:
            self._refused.add((message.uid, message.attempt))
            log.error(
                "job %s, attempt %d: its messages are of protocol %s and this service understands %d; its progress is "
                "not seen. Install the same version of gpuwise for jobs and service",
                message.uid, message.attempt, message.version, PROTOCOL,
            )  # fmt: skip

    def close(self) -> None:
        """Takes nothing more; another mailbox that was opened in its place is left alone."""
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()


def _bind(box: socket.socket, path: Path) -> int:
    """Binds to a path that may be longer than an address can be; whatever was there makes room. The socket's inode."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        fresh = f".{path.name}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        box.bind(f"/proc/self/fd/{folder}/{fresh}")
        os.chmod(fresh, 0o600, dir_fd=folder)
        os.rename(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        return os.stat(path.name, dir_fd=folder).st_ino
    finally:
        os.close(folder)
