"""How a run ended, what that means for its job, and why it failed."""

from __future__ import annotations

import errno
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from gpuwise.core.observations import Cause, Details, Phase
from gpuwise.core.units import format_bytes
from gpuwise.live.local.attempts.folders import Exit, finite, text, whole
from gpuwise.live.local.attempts.limits import oom_kills, peak_bytes
from gpuwise.live.local.attempts.reports import Kept, Reports
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.plan import Goal
from gpuwise.live.local.supervisor.files import read_end

TAIL_BYTES = 8192
LAST_LINE_LENGTH = 200
NO_MEMORY = re.compile(
    rb"^[\w.]*MemoryError\b|CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    rb"|DefaultCPUAllocator: can't allocate memory|std::bad_alloc|RESOURCE_EXHAUSTED: Out of memory"
    rb"|Cannot allocate memory",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    exit: Exit
    phase: Phase
    cause: Cause
    text: str
    """Why it failed, for the user who submitted it."""
    peak_memory_bytes: float | None
    kept: Kept | None
    """What it saved when it was asked to leave; None is what its last checkpoint keeps."""

    @classmethod
    def of(cls, run: Run, goal: Goal, output: Path, group: Path | None, stand_in: bool) -> Ending:
        """Reads everything that says how a run ended; ``group`` is its control group."""
        attempt = run.attempt
        ended = run.lost or attempt.exit()
        orders, offset = run.orders(), whole(attempt.read("started"), "offset")
        why = text(orders, "why")
        no_memory = ended.code != 0 and ran_out_of_memory(ended, group, output, offset)
        left = attempt.left_as_asked() and (goal is not Goal.RUN or run.is_resumed)
        final = orders.get("final") is True
        phase, cause = judge(ended, goal, left_as_asked=left, final=final, why=why, no_memory=no_memory)
        described = ""
        if phase is Phase.FAILED:
            launch, last = attempt.read("launch"), last_line(tail(output, offset))
            limit, account = finite(launch, "memory_bytes"), launch.get("account")
            described = describe(ended, cause, why=why, limit_bytes=limit, last_line=last)
            if ended.doing and isinstance(account, dict):
                described = f"as account {text(account, 'name')}: {described}"
        peak = peak_memory_bytes(ended, group) if stand_in else run.gpu_memory_bytes or None
        saved = attempt.read_from_job("saved") if phase is Phase.SUSPENDED else {}
        kept = (finite(saved, "step"), finite(saved, "steps") or None) if "step" in saved else None
        return cls(ended, phase, cause, described, peak, kept)

    def report(self, reports: Reports, run: Run, goal: Goal) -> None:
        """Reports how a run ended; of one that was to be gone only if it was ordered to end."""
        if goal is Goal.END and not self.exit.asked:
            return
        if run.attempt.is_started and goal is Goal.RUN:
            reports.running(run)
        details = Details(cause=self.cause, text=self.text, peak_memory_bytes=self.peak_memory_bytes)
        reports.ended(run, self.phase, self.exit, details, self.kept)


def last_line(printed: bytes) -> str:
    """The last thing that was printed, as far as it can be shown."""
    lines = printed.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(each for each in last if each.isprintable())[:LAST_LINE_LENGTH]


def judge(
    ended: Exit, goal: Goal, *, left_as_asked: bool, final: bool, why: str, no_memory: bool
) -> tuple[Phase, Cause]:
    """What an end means; ``why`` is the reason for which it was ordered, ``final`` if the job ends with the attempt."""
    ordered = ended.asked in ("stop", "kill")
    if goal is Goal.END:
        return (Phase.FAILED, Cause.DEVICE_LOST) if why and not final else (Phase.STOPPED, Cause.ERROR)
    if ordered and final:
        return Phase.FAILED, Cause.LIMIT if why else Cause.ERROR
    if left_as_asked or (ordered and goal is not Goal.RUN):
        return (Phase.SUSPENDED if goal is Goal.SUSPEND else Phase.MOVED), Cause.ERROR
    if ended.lost or ended.asked == "shutdown" or (ordered and why):
        return Phase.FAILED, Cause.DEVICE_LOST if why else Cause.LOST
    if ended.asked == "left":
        return Phase.FAILED, Cause.LIMIT
    if ended.code == 0:
        return Phase.SUCCEEDED, Cause.ERROR
    return Phase.FAILED, Cause.OUT_OF_MEMORY if no_memory else Cause.LIMIT if why and final else Cause.ERROR


def describe(ended: Exit, cause: Cause, *, why: str, limit_bytes: float, last_line: str) -> str:
    """Why an attempt failed, for the user who submitted it."""
    if why:
        return why
    if ended.lost:
        return "the machine was restarted while it ran" if ended.restarted else "its supervisor was lost"
    if ended.doing:
        return _not_started(ended)
    if ended.asked == "shutdown":
        return "its supervisor was asked to stop; was the machine shut down?"
    if ended.asked == "left":
        return "its client disconnected, or did not connect in time"
    if cause is Cause.OUT_OF_MEMORY:
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
    "account": "change to its account",
    "give": "give its folders to its account",
}


def _not_started(ended: Exit) -> str:
    known = _ADVICE.get((ended.doing, ended.errno))
    return known or f"could not {_DOING.get(ended.doing, 'start it')}: {os.strerror(ended.errno)}"


def ran_out_of_memory(ended: Exit, group: Path | None, output: Path, offset: int) -> bool:
    """Whether a failed attempt failed for want of memory; ``offset`` is where its own output begins."""
    if group is not None and oom_kills(group) > 0:
        return True
    if ended.signal == signal.SIGKILL and not ended.asked and ended.machine_oom_kills > 0:
        return True
    return NO_MEMORY.search(tail(output, offset)) is not None


def peak_memory_bytes(ended: Exit, group: Path | None) -> float | None:
    """The most memory an attempt has used, if it is known."""
    by_group = peak_bytes(group) if group is not None else 0.0
    return max(by_group, ended.max_rss_bytes) or None


def tail(output: Path, offset: int) -> bytes:
    """The end of what an attempt has printed."""
    try:
        return read_end(output, offset, TAIL_BYTES)
    except OSError:
        return b""
