"""The folder a service keeps its state in: its lock, its owner's token, and where it listens."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.live.local.modes import PASSABLE, PRIVATE

PRIVATE_FILE = 0o600


def default_state_folder() -> Path:
    """$GPUWISE_STATE, else gpuwise in $XDG_STATE_HOME, else in ~/.local/state."""
    named = os.environ.get("GPUWISE_STATE")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "gpuwise"


class StateFolder:
    """A folder that only its owner may enter, used by one service at a time.

    Where jobs run as other accounts, these may pass through it to names that they know, and list nothing. It stays so
    for as long as it is in use: their jobs may outlive the service that let them in.
    """

    def __init__(self, path: Path, *, passable: bool = False) -> None:
        self.path = path.resolve() if passable else path.absolute()
        self._passable = passable
        self.database = self.path / "gpuwise.db"
        self.jobs = self.path / "jobs"
        self.mps = self.path / "mps"
        self._token = self.path / "token"
        self._endpoint = self.path / "endpoint.json"
        self._lock = -1

    def open(self) -> None:
        """Makes the folder if it is not there, and takes its lock."""
        self.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self._require_ours()
        if self._passable:
            self._require_safe_way()
        if not self._passable and stat.S_IMODE(self.path.stat().st_mode) != PASSABLE:
            os.chmod(self.path, PRIVATE)
        self.jobs.mkdir(mode=PRIVATE, exist_ok=True)
        self._lock = os.open(self.path / "controller.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise GpuwiseError(
                f"{self.path}: a gpuwise service uses this folder already; stop it, or choose another with --state"
            ) from None
        if self._passable:
            self._let_pass()

    def _let_pass(self) -> None:
        """Lets other accounts pass to the folders of jobs; all else in here was private by the mode of this folder."""
        for entry in os.scandir(self.path):
            if entry.is_file(follow_symlinks=False):
                os.chmod(entry.path, PRIVATE_FILE)
            elif entry.is_dir(follow_symlinks=False) and entry.name != self.jobs.name:
                os.chmod(entry.path, PRIVATE)
        for folder in (self.jobs, self.path):
            folder.chmod(PASSABLE)

    def _require_safe_way(self) -> None:
        """Refuses a folder that jobs of other accounts cannot reach, or in whose place another can be put."""
        for folder in self.path.parents:
            found = folder.stat()
            if not found.st_mode & stat.S_IXOTH:
                raise GpuwiseError(
                    f"{folder} may not be entered by other accounts, and jobs of --as-user have their folders in "
                    f"{self.path}; choose another with --state /var/lib/gpuwise, and give other commands the same "
                    "in GPUWISE_STATE"
                )
            others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
            if found.st_uid != os.geteuid() or others_write:
                raise GpuwiseError(
                    f"{folder} can be changed by others than root, who could replace {self.path}; choose another "
                    "folder for --as-user with --state"
                )

    def _require_ours(self) -> None:
        if (owner := self.path.stat().st_uid) != os.geteuid():
            raise GpuwiseError(f"{self.path} belongs to user {owner}; choose a folder of your own with --state")

    def close(self) -> None:
        """Releases the lock."""
        self._endpoint.unlink(missing_ok=True)
        os.close(self._lock)

    def token(self) -> str | None:
        """The owner's secret, if there is one; others must not be able to read it."""
        try:
            secret = self._token.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        os.chmod(self._token, 0o600)
        return secret or None

    def write_token(self, secret: str) -> None:
        """Writes the owner's secret where only they can read it."""
        _write_private(self._token, secret + "\n")

    def announce(self, url: str) -> None:
        """Writes where the service listens."""
        _write_private(self._endpoint, json.dumps({"url": url, "pid": os.getpid()}) + "\n")


def _write_private(path: Path, text: str) -> None:
    """Replaces a file atomically; only its owner may ever read it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
