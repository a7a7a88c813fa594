"""Files that a job may have replaced by anything, a pipe, a link, terabytes: reading never waits and has a bound."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> int:
    """A handle to read a file; OSError if it is not a regular one. The last part of its path may not be a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_whole(path: Path, most_bytes: int) -> bytes:
    """All of a file; OSError if that is more than it may be."""
    with open(open_regular(path), "rb") as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return found


def read_end(path: Path, offset: int, most_bytes: int) -> bytes:
    """The end of a file from ``offset`` on."""
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(min(offset, size), size - most_bytes))
        return file.read(most_bytes)


def replace(path: Path, content: bytes) -> None:
    """Writes a file so that readers see the old one or the new one; what lies where it is prepared is removed."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)
