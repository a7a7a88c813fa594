"""What becomes of a job whose attempt failed: it ends, or is tried again. One rule, simulated and live."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuwise.core.observations import UNCOUNTED, Cause
from gpuwise.core.units import format_bytes

OUT_OF_MEMORY_RETRIES = 3
LOST_RETRIES = 3
"""A job that was lost is tried again this often even if its user asked for no retries."""
GROWTH = 1.5
"""An estimate of memory that was too low grows by this at least; three times is 3.4 times the first."""
HEADROOM = 1.1
"""What was measured, and a little more."""
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 1.0, 300.0


@dataclass(frozen=True, slots=True)
class History:
    """What has happened to a job before."""

    retries: int
    """Retries its user allows."""
    failures: int
    """Failures that counted."""
    out_of_memory: int
    """Attempts that ran out of memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory per GPU of an attempt that ran out of it."""

    had_bytes: float
    """What it was thought to need, or its share of the device."""
    peak_bytes: float
    """The most it was seen to use; 0 is unknown."""
    most_bytes: float
    """What the largest device that it may have has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job is tried again, and how much memory it is thought to need from now on."""

    retry: bool
    cause: str
    gpu_memory_bytes: float | None = None


def judge(cause: Cause, detail: str, history: History, memory: Memory) -> Verdict:
    """What becomes of a job after a failure."""
    if cause in UNCOUNTED:
        return Verdict(True, detail)
    if cause is Cause.LIMIT:
        return Verdict(False, detail)
    if cause is Cause.OUT_OF_MEMORY:
        return _after_out_of_memory(history, memory)
    allowed = max(history.retries, LOST_RETRIES) if cause is Cause.LOST else history.retries
    return Verdict(history.failures < allowed, detail)


def back_off_s(refusals: int) -> float:
    """How long a job waits after its start was refused so many times in a row."""
    return min(FIRST_BACK_OFF_S * 2.0 ** min(refusals - 1, 60), LONGEST_BACK_OFF_S)


def _after_out_of_memory(history: History, memory: Memory) -> Verdict:
    had, most = format_bytes(memory.had_bytes), format_bytes(memory.most_bytes)
    if memory.had_bytes >= memory.most_bytes:
        return Verdict(False, f"out of memory: it had all {most} of a device")
    if memory.peak_bytes > memory.most_bytes:
        needed = format_bytes(memory.peak_bytes)
        return Verdict(False, f"out of memory: it needs {needed} on a device, and the largest has {most}")
    if history.out_of_memory >= OUT_OF_MEMORY_RETRIES:
        return Verdict(False, f"out of memory {history.out_of_memory + 1} times, the last time with {had} per device")
    wanted = corrected_bytes(memory.had_bytes, memory.peak_bytes, memory.most_bytes)
    return Verdict(True, f"out of memory with {had} per device; tried again with {format_bytes(wanted)}", wanted)


def corrected_bytes(had: float, peak: float, most: float) -> float:
    """The next estimate for a job that ran out with ``had`` per GPU, in whole bytes, at most what a GPU has."""
    return min(float(math.ceil(max(had * GROWTH, peak * HEADROOM))), most)
