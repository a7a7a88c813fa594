"""Small JSON files that are whole or not there, and files that are on disk before they are named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class WatchedFile:
    """A JSON file that others replace; it is read only when it is another one than last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = os.fspath(path)
        self._seen = (0, 0)
        self._content: dict[str, Any] = {}

    def content(self) -> dict[str, Any]:
        """What it holds now, for the price of a stat; empty if there is nothing that can be read."""
        try:
            found = os.stat(self._name)
        except OSError:
            return {}
        identity = (found.st_ino, found.st_mtime_ns)
        if identity != self._seen:
            self._seen, self._content = identity, read_json(self._path)
        return self._content


def write_json(path: Path, content: Mapping[str, Any], *, lasting: bool = True) -> None:
    """Puts a JSON file in place in one go: readers see the old one or the new one.

    So it is after a power failure too if it is to be ``lasting``, which takes the time to write it to disk.
    """
    if not lasting:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(path)
        return
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes ``path`` when the block ends well and vanishes when it does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
