"""The folders of jobs and attempts: what is in them, read so that garbage in any file does no harm."""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import hashlib
import hmac
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwise.core.commands import Placement
from gpuwise.engine.journal import placement_of
from gpuwise.live.local.accounts import Account
from gpuwise.live.local.modes import PASSABLE, PRIVATE
from gpuwise.live.local.supervisor import files

FORMAT = 1
"""Of the files in an attempt's folder; launch.json says which, and one that says nothing is of format 1."""
TOKEN_LENGTH = 32
LARGEST_ERRNO = 4095
"""The kernel has no larger error numbers."""
JOB = "job"
"""In an attempt's folder: the folder that its job writes to."""
LEAVE, PAUSE, RUN = "leave", "pause", "run"
"""What control.json may ask of a job."""
NOT_ITS_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR)
"""Errors that say something of this machine, and nothing of the file that was to be opened."""


class AttemptState(enum.Enum):
    """What an attempt's folder says of it."""

    ABSENT = enum.auto()
    """No supervisor has claimed it."""
    LAUNCHING = enum.auto()
    """It has a supervisor; its processes are not started yet."""
    RUNNING = enum.auto()
    ENDED = enum.auto()
    LOST = enum.auto()
    """Its supervisor is gone and did not say how it ended."""


def attempt_token(secret: bytes, uid: str, number: int) -> str:
    """What messages of an attempt must carry."""
    return hmac.new(secret, f"{uid}/{number}".encode(), hashlib.sha256).hexdigest()[:TOKEN_LENGTH]


def finite(found: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    """A number in an object; the default if it is none."""
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    try:
        value = float(value)
    except OverflowError:
        return default
    return value if math.isfinite(value) else default


def whole(found: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A whole number in an object; the default if it is none."""
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def text(found: Mapping[str, Any], name: str) -> str:
    """A text in an object; empty if it is none."""
    value = found.get(name)
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended."""

    code: int | None = None
    """0 to 255; a signal is 128 and its number, as in a shell. None is unknown."""
    signal: int | None = None
    doing: str = ""
    """What could not be done to start it, if it was not: ``chdir``, ``exec``, ..."""
    errno: int = 0
    asked: str = ""
    """The order that ended it."""
    lost: bool = False
    """Whether its supervisor did not live to see it."""
    restarted: bool = False
    """Whether that is because the machine was restarted."""
    max_rss_bytes: float = 0.0
    cpu_s: float | None = None
    machine_oom_kills: int = 0
    at: float | None = None
    """Unix time."""

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Exit:
        """From exit.json."""
        trouble = found.get("trouble")
        trouble = trouble if isinstance(trouble, dict) else {}
        code = whole(found, "code", -1)
        return cls(
            code=code if 0 <= code <= 255 else None,
            signal=whole(found, "signal") or None,
            doing=text(trouble, "doing"),
            errno=number if 0 <= (number := whole(trouble, "errno")) <= LARGEST_ERRNO else 0,
            asked=text(found, "asked"),
            lost=found.get("lost") is True,
            restarted=found.get("restarted") is True,
            max_rss_bytes=finite(found, "max_rss_bytes"),
            cpu_s=cpu_s if (cpu_s := finite(found, "cpu_s", -1.0)) >= 0 else None,
            machine_oom_kills=whole(found, "machine_oom_kills"),
            at=finite(found, "at") or None,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of a job, by its folder."""

    uid: str
    number: int
    folder: Path

    def state(self) -> AttemptState:
        """How far it has got."""
        if self.read("exit"):
            return AttemptState.ENDED
        locked = is_locked(self.folder / "claim")
        if locked is None:
            return AttemptState.ABSENT
        if not locked:  # it may have ended since we looked
            return AttemptState.ENDED if self.read("exit") else AttemptState.LOST
        return AttemptState.RUNNING if self.is_started else AttemptState.LAUNCHING

    @property
    def is_started(self) -> bool:
        """Whether its processes were started."""
        return os.path.lexists(self.folder / "started.json")

    def read(self, name: str) -> dict[str, Any]:
        """The object in one of its JSON files; empty if there is none."""
        most_bytes = files.LARGEST_LAUNCH_BYTES if name == "launch" else files.LARGEST_BYTES
        return files.read_json(self.folder / f"{name}.json", most_bytes)

    def write(self, name: str, found: Mapping[str, Any], group: int | None = None) -> None:
        """Replaces one of its JSON files; a group may read it, if one is given."""
        files.write_json(self.folder / f"{name}.json", found, group)

    @property
    def job_folder(self) -> Path:
        """What its job writes to; the whole folder if an earlier version of gpuwise started it."""
        own = self.folder / JOB
        return own if own.is_dir() else self.folder

    def read_from_job(self, name: str) -> dict[str, Any]:
        """The object in a JSON file of its job; empty if there is none."""
        return files.read_json(self.job_folder / f"{name}.json")

    def exit(self) -> Exit:
        """How it ended; of a file that cannot be read, nothing is known."""
        return Exit.parse(self.read("exit"))

    def order(self, want: str, **details: Any) -> int:
        """Writes what its supervisor shall do; the order's number."""
        before = self.read("orders")
        seq = whole(before, "seq") + 1
        self.write("orders", {**before, "why": "", "final": False, **details, "seq": seq, "want": want})
        return seq

    def ask(self, want: str) -> None:
        """Writes what the job itself shall do."""
        owner = os.lstat(self.job_folder)
        group = owner.st_gid if owner.st_uid != os.geteuid() else None
        self.write("control", {"seq": whole(self.read("control"), "seq") + 1, "want": want}, group)

    def left_as_asked(self) -> bool:
        """Whether it saved its state and left because it was asked to.

        Its exit code does not say so: a launcher such as torchrun replaces that of its workers by its own.
        """
        return 1 <= whole(self.read_from_job("saved"), "seq") <= whole(self.read("control"), "seq")

    @property
    def can_suspend(self) -> bool:
        """Whether its job saves its state when asked to leave."""
        return self.read_from_job("sdk").get("can_suspend") is True

    @property
    def can_pause(self) -> bool:
        """Whether its job stands still between two steps when asked; SDKs from before time slices do not say so."""
        return self.read_from_job("sdk").get("can_pause") is True

    def is_paused(self, seq: int) -> bool:
        """Whether its job says that it stands still, as it was asked to by the request of this number."""
        return whole(self.read_from_job("paused"), "seq") == seq

    def place(self) -> tuple[int, Placement]:
        """Which placement of its job it runs for, counted from 1, and where that is."""
        orders, launch = self.read("orders"), self.read("launch")
        number = whole(orders, "as", self.number)
        for found in (orders.get("placement"), launch.get("placement")):
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                return number, placement_of(found)  # type: ignore[arg-type]
        return number, Placement(())

    @property
    def name(self) -> str:
        """What its control group and the mark that it is live are called."""
        return f"{self.uid}.{self.number}"


def is_locked(path: Path) -> bool | None:
    """Whether some process has locked a file; None if there is no such file, or none that we may read."""
    try:
        handle = files.open_regular(path)
    except OSError as error:
        if error.errno in NOT_ITS_FAULT:
            raise
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(handle)
    return False


class Folders:
    """Where jobs keep their files, and which attempts are not over yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._live = root / "live"
        for folder in (root, self._live, root / "jobs"):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)

    def job(self, uid: str) -> Path:
        """The folder of a job."""
        if not uid or "/" in uid or uid.startswith("."):
            raise ValueError(f"{uid!r} cannot be the name of a folder")
        return self.root / "jobs" / uid

    def attempt(self, uid: str, number: int) -> Attempt:
        """An attempt, whether it is there or not."""
        return Attempt(uid, number, self.job(uid) / "attempts" / str(number))

    def before(self, attempt: Attempt) -> Attempt:
        """The attempt of the same job that has a folder and is the newest before this one."""
        found = (self.attempt(attempt.uid, number) for number in range(attempt.number - 1, 0, -1))
        return next((each for each in found if each.folder.is_dir()), self.attempt(attempt.uid, 0))

    def output(self, uid: str) -> Path:
        """What all attempts of a job have printed."""
        return self.job(uid) / "output.log"

    def checkpoint(self, uid: str) -> Path:
        """The folder for what a job saves."""
        return self.job(uid) / "checkpoint"

    def saved_steps(self, uid: str) -> tuple[float, float | None]:
        """What the last checkpoint of a job keeps: its steps done, and in all if it says so."""
        latest = files.read_json(self.checkpoint(uid) / "latest.json")
        named = text(latest, "file")
        if named and ("/" in named or not os.path.lexists(self.checkpoint(uid) / named)):  # or it cannot be looked for
            return 0.0, None
        return finite(latest, "step"), finite(latest, "steps") or None

    def set_aside(self, uid: str) -> Path:
        """Keeps the folder of a job under another name."""
        aside = self.root / "jobs" / f"{uid}.{time.time_ns()}.old"
        return self.job(uid).rename(aside)

    def work(self, uid: str) -> Path:
        """The working folder of a job that named none."""
        return self.job(uid) / "work"

    def make(self, attempt: Attempt, account: Account | None = None) -> None:
        """Makes an attempt's folders; from now on it counts as live.

        What is in the job's own folders may be an account's; the way to them never is, so that no account can put
        anything else in their place.
        """
        for folder in (self.job(attempt.uid), attempt.folder.parent, attempt.folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            if account is not None:
                folder.chmod(PASSABLE)
        for folder in (self.checkpoint(attempt.uid), self.work(attempt.uid), attempt.folder / JOB):
            folder.mkdir(mode=PRIVATE, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (attempt.folder / JOB / "control.json").symlink_to(os.path.join(os.pardir, "control.json"))
        if account is not None:
            os.chown(attempt.folder / JOB, account.uid, account.gid, follow_symlinks=False)
        (self._live / attempt.name).touch(mode=0o600)

    def close(self, attempt: Attempt) -> None:
        """An attempt is over, and that is on record."""
        with contextlib.suppress(OSError):
            (self._live / attempt.name).unlink(missing_ok=True)

    def live(self) -> Iterator[Attempt]:
        """The attempts that are not over yet."""
        for name in sorted(os.listdir(self._live)):
            uid, _, number = name.rpartition(".")
            if uid and not uid.startswith(".") and number.isdecimal():
                yield self.attempt(uid, int(number))
