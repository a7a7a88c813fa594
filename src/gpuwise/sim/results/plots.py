"""Plots of simulations with matplotlib: completion times, queue, use of the GPUs, which job ran where."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.tables import Array
from gpuwise.sim.results.course import Course, cdf_points, courses, time_edges
from gpuwise.sim.results.occupancy import Bars, bars, fullness

if TYPE_CHECKING:
    from gpuwise.sim.results.result import SimulationResult
from gpuwise.sim.results.ticks import Tick, duration_ticks, log_duration_ticks, log_range, nice_ticks

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as error:
    raise GpuwiseError("plots need matplotlib: pip install 'gpuwise[plot]'") from error

TIME_BINS = 600
MAP_BINS = 300
MOST_BARS = 20_000
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d00", "#56b4e9", "#5b5b5b", "#7a3fb0")
"""After Okabe and Ito, for colour-blind readers, with darker colours in place of yellow and black."""
_SINCE_FIRST = "time since the first submission"
_SUFFIXES = (".png", ".svg")


def jct_cdf(results: Sequence[SimulationResult]) -> Figure:
    """Which part of the jobs was done within what time."""
    return _of_runs(results, _draw_cdf)


def queue_over_time(results: Sequence[SimulationResult]) -> Figure:
    """How many jobs waited, over time."""
    return _of_runs(results, _draw_queue)


def use_over_time(results: Sequence[SimulationResult]) -> Figure:
    """Which part of the cluster's GPUs was allocated and which was used, over time."""
    return _of_runs(results, _draw_use)


def _of_runs(results: Sequence[SimulationResult], draw: Callable[[Axes, Sequence[Course]], None]) -> Figure:
    figure, axes = _single()
    runs = courses(results)
    draw(axes, runs)
    _legend(figure, runs)
    return figure


def gantt(result: SimulationResult) -> Figure:
    """Which job ran where: a bar per job; or how full the nodes were, where bars would be too many."""
    figure, axes = _single()
    _draw_nodes(axes, courses([result])[0])
    return figure


def overview(results: Sequence[SimulationResult]) -> Figure:
    """Completion times, queue, use of the GPUs, and which job ran where under the first policy, in one figure."""
    runs = courses(results)
    figure = Figure(figsize=(12, 8), dpi=110, layout="constrained")
    (upper_left, upper_right), (lower_left, lower_right) = figure.subplots(2, 2)
    _draw_cdf(upper_left, runs)
    _draw_queue(upper_right, runs)
    _draw_use(lower_left, runs)
    _draw_nodes(lower_right, runs[0])
    _legend(figure, runs)
    return figure


def save(results: Sequence[SimulationResult], path: str | os.PathLike[str]) -> None:
    """Writes the overview to a PNG or SVG file; the same results give the same bytes."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise GpuwiseError(f"cannot plot to {os.fspath(path)!r}; the file's name must end in {' or '.join(_SUFFIXES)}")
    figure = overview(results)
    metadata = {"Date": None} if suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": "gpuwise"}):
        try:
            figure.savefig(path, metadata=metadata)
        except OSError as error:
            raise GpuwiseError(f"cannot write {os.fspath(path)!r}: {error.strerror or error}") from error


def _single() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    return figure, figure.subplots()


def _draw_cdf(axes: Axes, runs: Sequence[Course]) -> None:
    ends: list[float] = []
    for number, run in enumerate(runs):
        across, up = cdf_points(run.jct_s)
        ends += across[[0, -1]].tolist() if len(across) else []
        axes.step(
            np.append(across[:1], across), np.append(0.0, 100 * up) if len(up) else [], where="post", **_look(number)
        )
    low, high = log_range(ends)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    _marks(axes.xaxis, log_duration_ticks(low, high, most=8))
    axes.set_ylim(0, 100)
    _label(axes, "Job completion times", "job completion time", "jobs done (%)")


def _draw_queue(axes: Axes, runs: Sequence[Course]) -> None:
    edges_s = time_edges(runs, TIME_BINS)
    highest = 1.0
    for number, run in enumerate(runs):
        waiting = run.waiting(edges_s)
        highest = max(highest, float(waiting.max()))
        _steps(axes, edges_s, waiting, number)
    ticks = nice_ticks(highest, whole=True)
    _marks(axes.yaxis, ticks)
    axes.set_ylim(0, ticks[-1][0])
    _time(axes, edges_s[-1])
    _label(axes, "Queue length", _SINCE_FIRST, "jobs waiting")


def _draw_use(axes: Axes, runs: Sequence[Course]) -> None:
    edges_s = time_edges(runs, TIME_BINS)
    differ = False
    for number, run in enumerate(runs):
        allocated, used = 100 * run.allocated_frac(edges_s), 100 * run.used_frac(edges_s)
        _steps(axes, edges_s, used, number)
        if not np.allclose(allocated, used, atol=0.1):
            _steps(axes, edges_s, allocated, number, alpha=0.45, linewidth=0.9)
            differ = True
    axes.set_ylim(0, 102)
    _time(axes, edges_s[-1])
    title = "GPUs used (faint: allocated)" if differ else "GPUs allocated and used"
    _label(axes, title, _SINCE_FIRST, "GPUs of the cluster (%)")


def _draw_nodes(axes: Axes, run: Course) -> None:
    edges_s = time_edges([run], MAP_BINS)
    drawn = bars(run, MOST_BARS)
    if drawn is None:
        names = _draw_map(axes, run, edges_s)
        title = "GPUs allocated on nodes"
    else:
        _draw_bars(axes, run, drawn)
        names, title = list(run.node_names), "Jobs on nodes"
    axes.set_ylim(len(names), 0)
    every = -(-len(names) // 16)
    _marks(axes.yaxis, [(row + 0.5, names[row]) for row in range(0, len(names), every)])
    _time(axes, edges_s[-1])
    _label(axes, f"{title} under {_literal(run.label)}", _SINCE_FIRST, "node")
    axes.grid(visible=False)


def _draw_bars(axes: Axes, run: Course, drawn: Bars) -> None:
    left, right = run.begin_s[drawn.stay], run.end_s[drawn.stay]
    top, bottom = drawn.top, drawn.top + drawn.height
    corners = np.stack((left, top, right, top, right, bottom, left, bottom), axis=1).reshape(-1, 4, 2)
    colours = [COLOURS[job % len(COLOURS)] for job in run.job[drawn.stay].tolist()]
    # Where bars are few a white edge separates them; where they are many an edge in their own colour keeps short stays
    # visible. Thousands of shapes become a bitmap within an SVG.
    edges = "white" if len(drawn) <= 800 else colours
    shapes = PolyCollection(
        list(corners), facecolors=colours, edgecolors=edges, linewidths=0.3, rasterized=len(drawn) > 2000
    )
    axes.add_collection(shapes)


def _draw_map(axes: Axes, run: Course, edges_s: Array) -> list[str]:
    full = fullness(run, edges_s)
    rows = np.arange(len(full.rows) + 1)
    shown = axes.pcolormesh(edges_s, rows, 100 * full.allocated_frac, cmap="Blues", vmin=0, vmax=100, rasterized=True)
    axes.figure.colorbar(shown, ax=axes, label="GPUs allocated (%)")
    return full.rows


def _steps(axes: Axes, edges_s: Array, values: Array, number: int, **look: float) -> None:
    axes.stairs(values, edges_s, baseline=None, **{**_look(number), **look})


def _look(number: int) -> dict[str, Any]:
    style = ("-", "--", ":")[number // len(COLOURS) % 3]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": style, "linewidth": 1.6}


def _time(axes: Axes, span_s: float) -> None:
    axes.set_xlim(0, span_s)
    _marks(axes.xaxis, duration_ticks(span_s))


def _marks(axis: Axis, ticks: Iterable[Tick]) -> None:
    places, texts = zip(*ticks, strict=True)
    axis.set_ticks(list(places), [_literal(text) for text in texts])
    axis.set_ticks([], minor=True)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color="#e6e9ed")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, runs: Sequence[Course]) -> None:
    handles = [Line2D([], [], **_look(number)) for number in range(len(runs))]
    names = [_literal(run.label) for run in runs]
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(runs), 6), frameon=False)


def _literal(text: str) -> str:
    """Text with escaped dollar signs, between which matplotlib would read formulas."""
    return text.replace("$", r"\$")
