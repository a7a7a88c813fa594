"""Quantities: as integers that are counted with, and as people write them."""

from __future__ import annotations

import math
import re

from gpuwise.core.errors import GpuwiseError

MIB = 2**20
GIB = 2**30
MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0

WHOLE_GPU_MILLI = 1000
"""GPU shares are counted in thousandths, so that sums of fractions are exact."""
UNLIMITED = 2**62
"""What a node has of a resource that is not modelled (infinite); it stays the same whatever is taken from it."""


def cpu_milli(cpus: float) -> int:
    """CPUs in whole thousandths, rounded down.

    Capacities and needs are counted in whole thousandths of a CPU and whole bytes, so that sums and comparisons are
    exact. Both are rounded down, and so is the part of a job's need that falls on one of its nodes: what fits by the
    numbers that were declared always fits, and a job is given at most a thousandth of a CPU and a byte per node more
    than was counted. Numbers with up to three decimals are exact: ten jobs of 0.1 CPUs fit on one CPU.
    """
    return int(round(cpus * 1000, 6)) if cpus * 1000 < UNLIMITED else UNLIMITED


def whole_bytes(size: float) -> int:
    """A size in whole bytes, rounded down as `cpu_milli` is."""
    return int(size) if size < UNLIMITED else UNLIMITED


def remaining(available: int, used: int) -> int:
    """What is left of an amount when some of it is used, or freed again if negative; an unlimited one stays so."""
    return available if available == UNLIMITED else available - used


_DURATION_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": MINUTE_S, "min": MINUTE_S, "h": HOUR_S, "d": DAY_S}
_BYTE_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_duration_s(text: str) -> float:
    """Seconds in a duration such as ``90``, ``1.5h``, ``2d`` or ``01:30:00``."""
    text = text.strip()
    if re.fullmatch(r"\d+(:\d{1,2}){1,2}", text):
        seconds = 0.0
        for part in text.split(":"):
            seconds = seconds * 60 + int(part)
        return seconds
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    unit = match[2] or "s" if match else ""
    if match is None or unit not in _DURATION_UNITS_S:
        raise GpuwiseError(f"{text!r} is not a duration; write seconds, or a number with ms, s, m, h or d, or h:mm:ss")
    return float(match[1]) * _DURATION_UNITS_S[unit]


def parse_bytes(text: str) -> float:
    """Bytes in a size such as ``16G``, ``512MiB`` or ``1e9``; units are powers of 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, flags=re.IGNORECASE)
    if match is None:
        raise GpuwiseError(f"{text!r} is not a size; write bytes, or a number with K, M, G or T (powers of 1024)")
    return float(match[1]) * _BYTE_UNITS[match[2].upper()]


def format_duration(seconds: float) -> str:
    """A duration in the two largest units that matter: ``42.0s``, ``3m10s``, ``5h02m``, ``12d04h``."""
    if not math.isfinite(seconds):
        return "-" if math.isnan(seconds) else "never"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < MINUTE_S - 0.05:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < HOUR_S:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(seconds / MINUTE_S)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(seconds / HOUR_S)
    return f"{hours // 24}d{hours % 24:02d}h"


def format_bytes(size: float) -> str:
    """A size in the largest binary unit that keeps it above one: ``512 MiB``, ``15.8 GiB``."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"
