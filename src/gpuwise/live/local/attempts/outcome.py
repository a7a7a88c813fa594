"""What an attempt's end means for its job."""

from __future__ import annotations

import enum
import errno
import os
import signal

from gpuwise.core.units import format_bytes
from gpuwise.live.local.attempts.folders import Exit
from gpuwise.live.local.plan import Goal


class Outcome(enum.StrEnum):
    """How an attempt ended, in the words of its record."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"
    SUSPENDED = "suspended"
    MOVED = "moved"
    CANCELLED = "cancelled"
    LOST = "lost"


def judge(ended: Exit, goal: Goal, *, left_as_asked: bool, final: bool, why: str, no_memory: bool) -> Outcome:
    """How an attempt ended; ``why`` is the reason for which it was told to, ``final`` if its job shall end with it."""
    if goal is Goal.END:
        return Outcome.LOST if why and not final else Outcome.CANCELLED
    told = ended.asked in ("stop", "kill")
    if told and final:
        return Outcome.FAILED
    if left_as_asked or (told and goal is not Goal.RUN):
        return Outcome.SUSPENDED if goal is Goal.AWAY else Outcome.MOVED
    if ended.lost or ended.asked == "shutdown" or (told and why):  # its device was lost; the engine will learn of it
        return Outcome.LOST
    if ended.code == 0:
        return Outcome.SUCCEEDED
    return Outcome.OUT_OF_MEMORY if no_memory else Outcome.FAILED


def cause_of(ended: Exit, outcome: Outcome, *, why: str, limit_bytes: float, last_line: str) -> str:
    """Why an attempt failed, for the one who submitted it."""
    if why:
        return why
    if ended.lost:
        return "the machine was restarted while it ran" if ended.restarted else "its supervisor was lost"
    if ended.doing:
        return _not_started(ended)
    if ended.asked == "shutdown":
        return "its supervisor was asked to stop; was the machine shut down?"
    if outcome is Outcome.OUT_OF_MEMORY:
        return f"ran out of memory; its limit was {format_bytes(limit_bytes)}" if limit_bytes else "ran out of memory"
    if ended.signal is not None:
        return f"killed by signal {ended.signal}" + _signal_name(ended.signal)
    if ended.code is None:
        return "how it ended could not be read"
    return f"exited with code {ended.code}" + (f": {last_line}" if last_line else "")


def _signal_name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


_ADVICE = {
    ("exec", errno.ENOENT): "its program was not found; give its full path, or see that it is on the service's PATH",
    ("exec", errno.EACCES): "its program may not be executed; make it executable: chmod +x",
    ("exec", errno.ENOEXEC): "its program has an unknown format; name its interpreter first, or begin it with #!",
    ("exec", errno.E2BIG): "its arguments and environment are too long for this machine; pass them in a file",
    ("chdir", errno.ENOENT): "its working folder does not exist; create it, or submit with another workdir",
    ("chdir", errno.ENOTDIR): "its working folder is not a folder; submit with another workdir",
    ("chdir", errno.EACCES): "its working folder may not be entered; change its permissions, or submit with another",
}
_DOING = {
    "exec": "run its program",
    "chdir": "enter its working folder",
    "confine": "set its limits",
    "log": "write its log",
}


def _not_started(ended: Exit) -> str:
    known = _ADVICE.get((ended.doing, ended.errno))
    return known or f"could not {_DOING.get(ended.doing, 'start it')}: {os.strerror(ended.errno)}"
