"""The output of jobs: read from their folders, which the jobs may write to, so nothing there is trusted."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.errors import InvalidError

UID_PATTERN = r"(0|[1-9][0-9]{0,17})(-(0|[1-9][0-9]{0,17}))?"
LOG_NAME = "output.log"
_UID = re.compile(UID_PATTERN)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without blocking: a job may have put a pipe there that no process ever writes to."""
_LONGEST_CHARACTER = 4
_ERRORS = "gpuwise-log"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log, as UTF-8."""

    data: bytes
    """Bytes that are not UTF-8 are question marks, one for one, so that offsets in the log are offsets here."""
    start: int
    """Offset of its first byte."""
    next: int
    """Offset to continue from."""
    size: int
    """Bytes in the log now."""


class JobLogs:
    """The logs under one folder, ``UID/output.log`` each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def read(self, uid: str, offset: int, limit: int, *, complete: bool = False) -> Piece:
        """Up to ``limit`` bytes from ``offset`` on, counted from the end if it is negative.

        A character that is cut off at the end is left for the next piece, unless the log is ``complete``.
        """
        file = self._open(uid)
        if file is None:
            return Piece(b"", max(0, offset), max(0, offset), 0)
        with _closing(file):
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
                raise NotPossibleError(_replaced(uid))
            size = about.st_size
            start = offset if offset >= 0 else max(0, size + offset)
            data = os.pread(file, limit, start)
        if not (complete and start + len(data) >= size):
            data = data[: len(data) - _cut_off(data)] or data
        return Piece(data.decode("utf-8", _ERRORS).encode(), start, start + len(data), size)

    def is_alive(self, uid: str) -> bool:
        """Whether processes of a job may still be there: an attempt of it is claimed and has no end."""
        if not _UID.fullmatch(uid):
            raise InvalidError(f"{uid!r} is not the id of a job")
        marks = (self._folder.parent / "live").glob(f"{uid}.*")
        attempts = [self._folder / uid / "attempts" / mark.name.rpartition(".")[2] for mark in marks]
        return any(os.path.lexists(each / "claim") and not os.path.lexists(each / "exit.json") for each in attempts)

    def _open(self, uid: str) -> int | None:
        """The log as an open file; None while there is none. No symbolic link below the folder is followed."""
        if not _UID.fullmatch(uid):
            raise InvalidError(f"{uid!r} is not the id of a job")
        try:
            with (
                _closing(os.open(self._folder, _FOLDER)) as root,
                _closing(os.open(uid, _FOLDER, dir_fd=root)) as folder,
            ):
                return os.open(LOG_NAME, _FILE, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NotPossibleError(_replaced(uid)) from error


@contextmanager
def _closing(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error(_ERRORS, _question_marks)


def _replaced(uid: str) -> str:
    return f"the log of job {uid} was replaced by something else, so it is not read"


def _cut_off(data: bytes) -> int:
    """The number of bytes at the end that belong to an incomplete UTF-8 character."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needs else 0
        if byte < 0x80:
            return 0
    return 0
