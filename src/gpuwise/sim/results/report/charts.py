"""The report's charts: completion times, queue, use of the GPUs, which job ran where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwise.core.tables import Array
from gpuwise.core.units import format_duration
from gpuwise.sim.results.course import Course, cdf_at, cdf_points, time_edges
from gpuwise.sim.results.occupancy import Bars, bars, fullness
from gpuwise.sim.results.report import svg
from gpuwise.sim.results.report.svg import Axis, Chart
from gpuwise.sim.results.ticks import Tick, duration_ticks, log_duration_ticks, log_range, nice_ticks

TIME_BINS = 300
MAP_BINS = 120
MOST_BARS = 16_000
"""Bars in all of a report's Gantt charts together."""
MOST_BARS_EACH = 5_000
_SINCE_FIRST = "time since the first submission"
_THINNEST = 0.0008
"""The least width of a bar, as a part of the chart: about one pixel."""


def completion_times(runs: Sequence[Course]) -> Chart:
    """Which part of the jobs was done within what time."""
    ordered = [run.jct_s for run in runs]
    low, high = log_range([float(values[end]) for values in ordered if len(values) for end in (0, -1)])
    x = Axis(low, high, log_duration_ticks(low, high), "job completion time (logarithmic)", log=True)
    grid = np.geomspace(low, high, TIME_BINS)
    body, lines = "", []
    for i, (run, values) in enumerate(zip(runs, ordered, strict=True)):
        across, up = cdf_points(values)
        body += svg.line(i, svg.stairs(x.at(across).tolist(), up.tolist()))
        lines.append(_numbers(i, run.label, 100 * cdf_at(values, grid)))
    description = "For each policy, the part of the jobs that was done within a given time."
    data = {"kind": "lines", "log": [low, high], "unit": "%", "head": "done within", "lines": lines}
    return Chart("jct", "Job completion times", description, x, _percent_axis("jobs done"), body, data)


def queue_length(runs: Sequence[Course]) -> Chart:
    """How many jobs waited, over time."""
    edges_s = time_edges(runs, TIME_BINS)
    waiting = [run.waiting(edges_s) for run in runs]
    ticks = nice_ticks(max(float(values.max()) for values in waiting) or 1.0, whole=True)
    y = Axis(0, ticks[-1][0], ticks, "jobs waiting")
    body = "".join(svg.line(i, svg.steps(y.at(values).tolist())) for i, values in enumerate(waiting))
    lines = [_numbers(i, run.label, values) for i, (run, values) in enumerate(zip(runs, waiting, strict=True))]
    data = {"kind": "lines", "span": edges_s[-1], "unit": " waiting", "head": "after", "lines": lines}
    description = "For each policy, the number of jobs that wait for GPUs over time."
    return Chart("queue", "Queue length", description, _time_axis(edges_s[-1]), y, body, data)


def gpu_use(runs: Sequence[Course]) -> Chart:
    """Which part of the GPUs was allocated and which was used, over time."""
    edges_s = time_edges(runs, TIME_BINS)
    body, lines = "", []
    for i, run in enumerate(runs):
        allocated, used = run.allocated_frac(edges_s), run.used_frac(edges_s)
        lines.append(_numbers(i, run.label, 100 * used))
        if not np.allclose(allocated, used, atol=1e-3):
            body += svg.line(i, svg.steps(allocated.tolist()), "allocated")
            lines[-1]["allocated"] = _rounded(100 * allocated)
        body += svg.line(i, svg.steps(used.tolist()))
    data = {"kind": "lines", "span": edges_s[-1], "unit": "%", "head": "after", "lines": lines}
    description = "For each policy, the part of the cluster's GPUs that is allocated and used over time."
    y = _percent_axis("GPUs of the cluster")
    return Chart("use", "GPUs allocated and used", description, _time_axis(edges_s[-1]), y, body, data)


def occupancies(runs: Sequence[Course]) -> list[Chart]:
    """For each run a Gantt chart of its nodes, or a map of how full they were where bars would be too many."""
    edges_s = time_edges(runs, MAP_BINS)
    most = min(MOST_BARS_EACH, MOST_BARS // len(runs))
    found: list[Chart] = []
    for i, run in enumerate(runs):
        drawn = bars(run, most)
        found.append(_map(i, run, edges_s) if drawn is None else _gantt(i, run, drawn, edges_s[-1]))
    return found


def _gantt(number: int, run: Course, drawn: Bars, span_s: float) -> Chart:
    begin_s, end_s, job = run.begin_s[drawn.stay], run.end_s[drawn.stay], run.job[drawn.stay]
    rows = len(run.node_names)
    left, width = begin_s / span_s, np.maximum((end_s - begin_s) / span_s, _THINNEST)
    top, height = drawn.top / rows, drawn.height / rows
    kind = "bar apart b" if len(drawn) <= 800 else "bar b"
    body = svg.rectangles(left, top, width, height, job % svg.COLOURS, kind)
    data = {
        "kind": "bars",
        "span": span_s,
        "nodes": list(run.node_names),
        "ids": [run.ids[row] for row in np.unique(job).tolist()],
        "job": np.searchsorted(np.unique(job), job).tolist(),
        "node": run.node[drawn.stay].tolist(),
        "gpus": [round(gpus, 3) for gpus in run.allocated[drawn.stay].tolist()],
        "begin": np.rint(begin_s).astype("i8").tolist(),
        "lasts": np.rint(end_s - begin_s).astype("i8").tolist(),
        "top": np.rint(top * svg.CANVAS).astype("i8").tolist(),
        "height": np.rint(height * svg.CANVAS).astype("i8").tolist(),
    }
    description = f"Under {run.label}: for each node, the jobs on its GPUs over time; each job has one colour."
    y = _rows_axis(run.node_names)
    return _occupancy(number, run, description, span_s, y, body, data)


def _map(number: int, run: Course, edges_s: Array) -> Chart:
    full = fullness(run, edges_s)
    # One letter per cell: "A" for an empty one, "K" for one that is full.
    letters = ["".join(chr(65 + tenth) for tenth in row) for row in svg.tenths(full.allocated_frac).tolist()]
    data = {"kind": "map", "span": edges_s[-1], "nodes": full.rows, "cells": letters}
    description = f"Under {run.label}: for each row of nodes, the part of its GPUs that is allocated; darker is fuller."
    body = svg.shaded(full.allocated_frac)
    return _occupancy(number, run, description, edges_s[-1], _rows_axis(full.rows), body, data)


def _occupancy(number: int, run: Course, description: str, span_s: float, y: Axis, body: str, data: object) -> Chart:
    height_px = int(min(620, max(150, y.high * 56)))
    title = f"Jobs on nodes under {run.label}"
    return Chart(f"nodes-{number}", title, description, _time_axis(span_s), y, body, data, height_px)


def _rows_axis(names: Sequence[str]) -> Axis:
    """Nodes from top to bottom; where they are many, not every one is named."""
    count = len(names)
    every = -(-count // 22)
    ticks: list[Tick] = [(count - row - 0.5, names[row]) for row in range(0, count, every)]
    return Axis(0, count, ticks, "node", lines=range(0, count + 1, every))


def _time_axis(span_s: float) -> Axis:
    return Axis(0, span_s, duration_ticks(span_s), _SINCE_FIRST)


def _percent_axis(label: str) -> Axis:
    return Axis(0, 1, [(part / 4, f"{25 * part}%") for part in range(5)], label)


def _numbers(number: int, label: str, values: Array) -> dict[str, object]:
    return {"policy": number, "name": label, "values": _rounded(values)}


def _rounded(values: Array) -> list[float]:
    rounded: list[float] = values.round(1).tolist()
    return rounded


def bin_text(runs: Sequence[Course]) -> str:
    """How much time one step of a chart stands for."""
    return format_duration(time_edges(runs, TIME_BINS)[1])
