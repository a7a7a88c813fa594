"""What jobs print: read from their folders, which the jobs themselves may write to, so nothing there is trusted."""

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
from gpuwise.service.live.refusals import InvalidError

UID_PATTERN = r"(0|[1-9][0-9]{0,17})(-(0|[1-9][0-9]{0,17}))?"
LOG_NAME = "output.log"
_UID = re.compile(UID_PATTERN)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without waiting: a job may have put a pipe there that nobody ever writes to."""
_LONGEST_CHARACTER = 4
_ERRORS = "gpuwise-log"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log, as UTF-8."""

    data: bytes
    """A byte that is no UTF-8 is shown as a question mark, so that offsets in the log are offsets in what is read."""
    start: int
    """Offset of its first byte."""
    next: int
    """Offset to go on from."""
    size: int
    """Bytes there are now."""


class JobLogs:
    """The logs under one folder, ``UID/output.log`` each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def read(self, uid: str, offset: int, limit: int, *, whole: bool = False) -> Piece:
        """At most ``limit`` bytes from ``offset`` on, counted from the end if it is negative.

        A character that is cut off at the end is left for the next piece, unless the file is ``whole``, and no more
        will come.
        """
        file = self._open(uid)
        if file is None:
            return Piece(b"", max(0, offset), max(0, offset), 0)
        with _held(file):
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
                raise NotPossibleError(_replaced(uid))
            size = about.st_size
            start = offset if offset >= 0 else max(0, size + offset)
            data = os.pread(file, limit, start)
        if not (whole and start + len(data) >= size):
            data = data[: len(data) - _cut_off(data)] or data
        return Piece(data.decode("utf-8", _ERRORS).encode(), start, start + len(data), size)

    def _open(self, uid: str) -> int | None:
        """The log as an open file; None while there is none. No step below the folder follows a link."""
        if not _UID.fullmatch(uid):
            raise InvalidError(f"{uid!r} is not the id of a job")
        try:
            with _held(os.open(self._folder, _FOLDER)) as root, _held(os.open(uid, _FOLDER, dir_fd=root)) as folder:
                return os.open(LOG_NAME, _FILE, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NotPossibleError(_replaced(uid)) from error


@contextmanager
def _held(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error(_ERRORS, _question_marks)


def _replaced(uid: str) -> str:
    return f"the log of job {uid} was replaced by something that is not its log; it is not read"


def _cut_off(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 that is not there in full."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needs else 0
        if byte < 0x80:
            return 0
    return 0
