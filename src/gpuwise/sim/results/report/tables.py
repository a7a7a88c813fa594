"""The report's tables: policies side by side, jobs by size, the jobs that waited longest."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuwise.core.tables import Array
from gpuwise.core.units import format_duration
from gpuwise.sim.results.course import Course
from gpuwise.sim.results.report.svg import COLOURS

LONGEST = 10
SIZES = (("0", 0, 0), ("1", 1, 1), ("2–4", 2, 4), ("5–8", 5, 8), ("more than 8", 9, math.inf))
"""Classes of jobs by the GPUs they ask for; a class without jobs is left out."""


@dataclass(frozen=True)
class Figure:
    """A figure that runs are compared by, how it is written, and whether more of it is better."""

    name: str
    key: str
    written: Callable[[float], str]
    help: str
    more_is_better: bool = False
    is_part: bool = False
    measured: bool = False
    """Measured while simulating, so it differs from one run to the next."""


def _percent(part: float) -> str:
    return f"{100 * part:.1f}%"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _usd(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}"


def brief_time(seconds: float) -> str:
    """A short time in a suitable unit: ``8.9 µs``, ``12 ms``, ``3.4 s``."""
    for unit_s, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


FIGURES = (
    Figure("average JCT", "avg_jct_s", format_duration, "job completion time: from submission to end"),
    Figure("median JCT", "p50_jct_s", format_duration, "half of the jobs were done sooner"),
    Figure("p99 JCT", "p99_jct_s", format_duration, "99 of 100 jobs were done sooner"),
    Figure(
        "average queue",
        "avg_queue_s",
        format_duration,
        "time without GPUs, before or between runs",
    ),
    Figure("makespan", "makespan_s", format_duration, "from the first submission to the last end"),
    Figure("GPUs used", "gpu_util_frac", _percent, "GPU time in which steps were made", True, is_part=True),
    Figure("GPUs allo\u00adcated", "gpu_alloc_frac", _percent, "GPU time allocated to jobs", True, is_part=True),
    Figure("preemp\u00adtions", "preemptions", _count, "times a running job was suspended"),
    Figure("migra\u00adtions", "migrations", _count, "times a running job was moved"),
    Figure("deadline misses", "deadline_misses", _count, "jobs that ended after their deadline"),
    Figure("cost", "cost_usd", _usd, "the whole cluster for the makespan, in US dollars"),
    Figure("decision p50", "decide_p50_s", brief_time, "half of the policy's decisions were faster", measured=True),
    Figure("decision max", "decide_max_s", brief_time, "the policy's slowest decision", measured=True),
    Figure("wall time", "wall_s", brief_time, "how long the simulation itself took", measured=True),
)


def comparison(runs: Sequence[Course]) -> str:
    """Runs side by side, with the best of each figure marked and the difference from the first run."""
    rows = [run.result.as_dict() for run in runs]
    columns = [_column(figure, [row[figure.key] for row in rows]) for figure in FIGURES]
    heads = "".join(
        f'<th scope="col" title="{html.escape(figure.help)}"><button type="button">{figure.name}</button></th>'
        for figure in FIGURES
    )
    body = "".join(
        f'<tr><th scope="row">{swatch(i)}{html.escape(run.label)}</th>{"".join(column[i] for column in columns)}</tr>'
        for i, run in enumerate(runs)
    )
    first = '<th scope="col"><button type="button">policy</button></th>'
    caption = "Policies side by side; click a heading to sort"
    return _table(f"<thead><tr>{first}{heads}</tr></thead><tbody>{body}</tbody>", caption, "sortable")


def _column(figure: Figure, values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value is not None]
    best = (max if figure.more_is_better else min)(known) if len(set(known)) > 1 else None
    return [_cell(figure, value, None if i == 0 else values[0], best) for i, value in enumerate(values)]


def _cell(figure: Figure, value: float | None, base: float | None, best: float | None) -> str:
    if value is None:
        return "<td>–</td>"
    shown = f"<b>{figure.written(value)}</b>" if value == best else figure.written(value)
    delta = difference(value, base, is_part=figure.is_part)
    small = f"<small>{delta}</small>" if delta else ""
    kind = " ".join(["best"] * (value == best) + ["measured"] * figure.measured)
    return f'<td class="{kind}" data-value="{value!r}">{shown}{small}</td>'


def difference(value: float, base: float | None, *, is_part: bool = False) -> str:
    """How far a value is from the first run's, in per cent of it, or in percentage points for parts of the whole."""
    if base is None or (not is_part and base == 0):
        return ""
    change = 100 * (value - base) if is_part else 100 * (value - base) / base
    if abs(change) < 0.05:
        return "±0"
    sign, unit = "+" if change > 0 else "−", "pt" if is_part else "%"
    if change >= 900 and not is_part:
        return f"×{value / base:,.0f}"
    digits = 1 if is_part or abs(change) < 10 or change < -99 else 0
    return f"{sign}{abs(change):.{digits}f} {unit}"


def by_size(runs: Sequence[Course]) -> str:
    """Completion and queueing times of small and large jobs."""
    groups = "".join(
        f'<th scope="colgroup" colspan="2">{swatch(i)}{html.escape(run.label)}</th>' for i, run in enumerate(runs)
    )
    heads = '<th scope="col">mean JCT</th><th scope="col">mean queue</th>' * len(runs)
    body = ""
    for name, low, high in SIZES:
        members = [(run.gpus_asked >= low) & (run.gpus_asked <= high) for run in runs]
        counts = dict.fromkeys(_count(among.sum()) for among in members)
        if list(counts) != ["0"]:
            cells = "".join(_size_cells(run, among) for run, among in zip(runs, members, strict=True))
            body += f'<tr><th scope="row">{name}</th><td>{" / ".join(counts)}</td>{cells}</tr>'
    head = (
        f'<tr><th scope="col" rowspan="2">GPUs</th><th scope="col" rowspan="2">jobs</th>{groups}</tr><tr>{heads}</tr>'
    )
    return _table(
        f"<thead>{head}</thead><tbody>{body}</tbody>", "Completion and queueing times by GPUs asked for", "sizes"
    )


def _size_cells(run: Course, among: Array) -> str:
    ended = among & np.isfinite(run.finish_s)
    if not ended.any():
        return "<td>–</td><td>–</td>"
    jct_s = float((run.finish_s - run.submit_s)[ended].mean())
    return f"<td>{format_duration(jct_s)}</td><td>{format_duration(float(run.queue_s[ended].mean()))}</td>"


def longest_waits(number: int, run: Course) -> str:
    """The jobs of a run that waited longest, longest first."""
    known = np.flatnonzero(run.queue_s > 0)
    order = known[np.argsort(-run.queue_s[known], kind="stable")][:LONGEST]
    body = "".join(
        f'<tr><th scope="row">{html.escape(str(run.ids[job]))}</th><td>{run.gpus_asked[job]}</td>'
        f"<td>{format_duration(float(run.queue_s[job]))}</td></tr>"
        for job in order.tolist()
    )
    body = body or '<tr><td colspan="3">No job waited.</td></tr>'
    head = '<tr><th scope="col">job</th><th scope="col">GPUs</th><th scope="col">queue</th></tr>'
    caption = f"{swatch(number)}{html.escape(run.label)}"
    table = f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def swatch(number: int) -> str:
    """A patch of a policy's colour."""
    return f'<span class="swatch c{number % COLOURS}" aria-hidden="true"></span>'


def _table(content: str, caption: str, kind: str = "") -> str:
    table = f'<table class="{kind}"><caption class="unseen">{caption}</caption>{content}</table>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">{table}</div>'
