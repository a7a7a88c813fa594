"""What becomes of a job that failed: it ends, or tries again, after out-of-memory with a corrected estimate."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwise.core.memory import corrected_bytes
from gpuwise.core.records import JobRecord
from gpuwise.core.units import WHOLE_GPU_MILLI, format_bytes
from gpuwise.live.reports import AttemptEnded

OUT_OF_MEMORY_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job tries again, and what is believed of its memory from now on."""

    retry: bool
    cause: str
    gpu_memory_bytes: float | None = None


def judge(record: JobRecord, cause: str, ended: AttemptEnded | None, device_memory_bytes: float) -> Verdict:
    """What becomes of a job whose attempt failed; ``device_memory_bytes`` is the largest memory it could be given."""
    if ended is not None and ended.outcome == "out of memory":
        return _after_out_of_memory(record, ended, device_memory_bytes)
    if ended is not None and ended.outcome == "lost":
        return Verdict(record.failures < max(record.request.retries, OUT_OF_MEMORY_RETRIES), cause)
    return Verdict(record.failures < record.request.retries, cause)


def _after_out_of_memory(record: JobRecord, ended: AttemptEnded, device_memory_bytes: float) -> Verdict:
    # A policy may have given it a smaller part of the device than it asked for.
    had = record.gpu_memory_bytes or device_memory_bytes * ended.placement.milli / WHOLE_GPU_MILLI
    share = max(record.request.gpus, 1)
    wanted = corrected_bytes(had, (ended.peak_memory_bytes or 0.0) / share, device_memory_bytes)
    if had >= device_memory_bytes:
        return Verdict(False, f"out of memory: it had all {format_bytes(device_memory_bytes)} of a device")
    if record.out_of_memory >= OUT_OF_MEMORY_RETRIES:
        return Verdict(
            False, f"out of memory {record.out_of_memory + 1} times, the last time with {format_bytes(had)} a device"
        )
    return Verdict(
        True, f"out of memory with {format_bytes(had)} a device; tries again with {format_bytes(wanted)}", wanted
    )
