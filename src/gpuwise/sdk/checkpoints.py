"""A folder of checkpoints, each written atomically; the one before is kept.

    000007-step-1200/       one checkpoint
        state               what save(path) wrote: a file, a folder, or the same with an ending (state.npz)
        manifest.json       its step, and size and checksum of every file
    latest.json             the newest, for the controller

A checkpoint is written under a name that begins with a dot, synced, and then renamed. What counts is the manifest:
resuming takes the newest checkpoint whose files match it, so that a damaged one is ignored.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpuwise.sdk.files import read_json, sync, write_json

STATE, MANIFEST, LATEST = "state", "manifest.json", "latest.json"
_NAME = re.compile(r"(?P<number>\d{6,})-step-(?P<step>\d+)")
_CHUNK_BYTES = 1 << 20


class CheckpointError(Exception):
    """A checkpoint that could not be made, or a folder in which none is intact."""


class Checkpoint(NamedTuple):
    """A checkpoint that is intact."""

    state: Path
    """What save(path) wrote."""
    step: int


class Checkpoints:
    """The checkpoints in a folder, oldest to newest."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self._folder = folder
        self._keep = keep
        self._damaged: set[str] = set()

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is intact; None if none was ever made."""
        names = self._names()
        for name in reversed(names):
            if (found := _intact(self._folder / name)) is not None:
                return found
            self._damaged.add(name)
        if names:
            raise CheckpointError(
                f"none of the checkpoints in {self._folder} is intact: {', '.join(names)}; "
                "move them away to start from the beginning"
            )
        return None

    @property
    def damaged(self) -> list[str]:
        """Checkpoints that were ignored."""
        return sorted(self._damaged)

    def save(self, save: Callable[[Path], object], step: int, steps: int | None) -> None:
        """Makes a checkpoint of what ``save(path)`` writes; if that fails, those made before are still there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        number = max((_number(name) for name in self._names()), default=0) + 1
        name = f"{number:06d}-step-{step}"
        unfinished = self._folder / f".{name}"
        try:
            unfinished.mkdir()
            save(unfinished / STATE)
            _seal(unfinished, step, steps)
            unfinished.rename(self._folder / name)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync(self._folder)
        write_json(self._folder / LATEST, {"file": name, "step": step, "steps": steps})
        self._prune()

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted((name for name in names if _NAME.fullmatch(name)), key=_number)

    def _prune(self) -> None:
        """Removes damaged checkpoints and all but the newest; under another name first, so that none is half there."""
        good = [name for name in self._names() if name not in self._damaged]
        for name in (*self._damaged, *good[: -self._keep]):
            try:
                (self._folder / name).rename(self._folder / f".{name}")
            except OSError:
                continue
        self._damaged.clear()
        self._sweep()

    def _sweep(self) -> None:
        """Removes what a process that was killed left unfinished."""
        for name in os.listdir(self._folder):
            if name.startswith(".") and _NAME.fullmatch(name[1:]):
                shutil.rmtree(self._folder / name, ignore_errors=True)


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _seal(folder: Path, step: int, steps: int | None) -> None:
    files = {str(path.relative_to(folder)): _fingerprint(path) for path in _files(folder)}
    if not files:
        raise CheckpointError(f"save(path) wrote nothing; it must write a file or folder at path, {folder / STATE}")
    for path in _files(folder):
        sync(path)
    for inner, _, _ in os.walk(folder):
        sync(Path(inner))
    write_json(folder / MANIFEST, {"step": step, "steps": steps, "files": files})


def _intact(folder: Path) -> Checkpoint | None:
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest.get("step"), int) or not isinstance(manifest.get("files"), dict):
        return None
    try:
        if any(_fingerprint(folder / name) != found for name, found in manifest["files"].items()):
            return None
    except OSError:
        return None
    return Checkpoint(_state(folder), manifest["step"])


def _state(folder: Path) -> Path:
    """The path that save wrote to: some libraries add an ending to it, numpy's savez for one."""
    entries = [entry for entry in folder.iterdir() if entry.name != MANIFEST]
    return entries[0] if len(entries) == 1 else folder / STATE


def _files(folder: Path) -> Iterator[Path]:
    for inner, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(inner, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _fingerprint(path: Path) -> list[int]:
    """Size and CRC-32 of a file, which detect damage, not forgery, at 3 GB/s."""
    checksum = size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
            size += len(chunk)
    return [size, checksum]
