"""Files that are replaced atomically, and synced to disk; small JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if it cannot be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class WatchedFile:
    """A JSON file that other processes replace; it is read only after it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = os.fspath(path)
        self._seen = (0, 0)
        self._content: dict[str, Any] = {}

    def content(self) -> dict[str, Any]:
        """Its content, for the cost of a stat; empty if it cannot be read."""
        try:
            found = os.stat(self._name)
        except OSError:
            return {}
        identity = (found.st_ino, found.st_mtime_ns)
        if identity != self._seen:
            self._seen, self._content = identity, read_json(self._path)
        return self._content


def write_json(path: Path, content: Mapping[str, Any], *, lasting: bool = True) -> None:
    """Replaces a JSON file atomically: readers see the old one or the new one.

    With ``lasting`` also after a power failure, which takes the time to write it to disk.
    """
    with replacing(path, lasting=lasting) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[Path]:
    """A temporary file, which replaces ``path`` at the end of the block, and is removed if the block fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        if lasting:
            sync(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if lasting:
        sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
