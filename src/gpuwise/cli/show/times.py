"""Moments as people read them: local, and as seen from now."""

from __future__ import annotations

import time
from datetime import datetime

_UNITS = ((36 * 3600.0, 86400.0, "d"), (90 * 60.0, 3600.0, "h"), (90.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From which length on a unit is used, its seconds, its name."""


def span(seconds: float) -> str:
    """A length of time in its largest unit that matters: ``42 s``, ``4 min``, ``2 h``, ``3 d``."""
    unit_s, unit = next((unit_s, unit) for least_s, unit_s, unit in _UNITS if seconds >= least_s)
    return f"{round(seconds / unit_s)} {unit}"


def relative(at: float | None, now: float | None = None) -> str:
    """A Unix time as seen from now: ``in 4 min``, ``2 h ago``, ``now``; empty for None."""
    if at is None:
        return ""
    ahead_s = at - (time.time() if now is None else now)
    if abs(ahead_s) < 1:
        return "now"
    return f"in {span(ahead_s)}" if ahead_s > 0 else f"{span(-ahead_s)} ago"


def local(at: float | None, now: float | None = None) -> str:
    """A Unix time on this machine's clock, without the date if it is today's; empty for None."""
    if at is None:
        return ""
    try:
        moment = datetime.fromtimestamp(at)
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
    today = datetime.fromtimestamp(time.time() if now is None else now).date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")


def moment(at: float | None, now: float | None = None) -> str:
    """A Unix time on the clock and as seen from now: ``14:02:11 (2 h ago)``; empty for None."""
    return "" if at is None else f"{local(at, now)} ({relative(at, now)})"
