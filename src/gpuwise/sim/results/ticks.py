"""Where the marks on an axis go and what they say: round numbers, and durations in the unit that suits them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwise.core.units import DAY_S, HOUR_S, MINUTE_S

Tick = tuple[float, str]
"""A place on an axis and the text beside it."""

_STEPS_S = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(minutes * MINUTE_S for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 6, 12)),
    DAY_S,
)
_LOG_MARKS_S = (
    *(0.001, 0.01, 0.1, 1.0, 10.0),
    *(MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S),
    *(DAY_S, 10 * DAY_S, 100 * DAY_S, 1000 * DAY_S),
)
_FINE_LOG_MARKS_S = tuple(sorted({*_LOG_MARKS_S, *(3 * mark for mark in _LOG_MARKS_S if mark != 10 * HOUR_S)}))


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that divides a span into at most ``most`` parts."""
    if span <= 0 or not math.isfinite(span):
        return 1.0
    exponent = math.floor(math.log10(span / most))
    for factor in (1, 2, 5, 10, 20):
        # Negative powers of ten are not exact: dividing by a whole power keeps 0.2 equal to 2/10.
        step = factor * 10.0**exponent if exponent >= 0 else factor / 10.0**-exponent
        if span / step <= most * (1 + 1e-9):
            return step
    raise AssertionError(f"no step for a span of {span}")


def nice_ticks(high: float, most: int = 5, *, whole: bool = False) -> list[Tick]:
    """Round numbers from 0 to the first that is not below ``high``; ``whole`` allows no fractions."""
    step = nice_step(high, most)
    if whole:
        step = max(1.0, step)
    count = max(1, math.ceil(high / step - 1e-9))
    return [
        (i * step, f"{round(i * step, 12):,g}" if i * step < 1e5 else _thousands(i * step)) for i in range(count + 1)
    ]


def _thousands(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"


def duration_ticks(span_s: float, most: int = 10) -> list[Tick]:
    """Round durations from 0 up to ``span_s``: every 15 minutes, every 6 hours, every 20 days."""
    step = _duration_step(span_s, most)
    count = math.floor(span_s / step + 1e-9)
    return [(i * step, _in_unit_of(step, i * step)) for i in range(count + 1)]


def _duration_step(span_s: float, most: int) -> float:
    if span_s / most <= 0.5:
        return nice_step(span_s, most)
    for step in _STEPS_S:
        if span_s / step <= most:
            return step
    return DAY_S * nice_step(span_s / DAY_S, most)


def _in_unit_of(step: float, seconds: float) -> str:
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if step >= unit_s:
            return f"{seconds / unit_s:g}{unit}" if seconds else "0"
    return f"{round(seconds, 9):g}s" if seconds else "0"


def log_duration_ticks(low_s: float, high_s: float, most: int = 9) -> list[Tick]:
    """Marks for a logarithmic axis of durations: 1s, 10s, 1m, 10m, 1h and so on, with 3s, 30s, 3m between if few."""
    for marks in (_FINE_LOG_MARKS_S, _LOG_MARKS_S):
        inside = [mark for mark in marks if low_s <= mark <= high_s]
        if len(inside) <= most:
            break
    return [(mark, log_label(mark)) for mark in inside]


def log_label(seconds: float) -> str:
    """A mark of the logarithmic axis in words."""
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m"), (1.0, "s")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:g}{unit}"
    return f"{seconds * 1000:g}ms"


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """The marks of the logarithmic axis that the values lie between; 1s to 1m where there are none above zero."""
    above = [value for value in values if value > 0 and math.isfinite(value)]
    if not above:
        return 1.0, MINUTE_S
    low = max((mark for mark in _FINE_LOG_MARKS_S if mark <= min(above)), default=min(above))
    high = min((mark for mark in _FINE_LOG_MARKS_S if mark >= max(above)), default=max(above))
    return (low, high) if low < high else (low, low * 10)
