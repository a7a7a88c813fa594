"""Which job had which GPUs when: bars for a Gantt chart, or how full the nodes were where bars would be too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuwise.core.tables import Array
from gpuwise.sim.results.course import Course, time_average

MOST_NODES = 64
_MARGIN = 0.06
"""What is left free above and below the GPUs of a node, as a part of its row."""


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of a Gantt chart: the stay each belongs to, and its place from top to bottom in rows of nodes."""

    stay: Array
    top: Array
    height: Array

    def __len__(self) -> int:
        return len(self.stay)


@dataclass(frozen=True, eq=False)
class Fullness:
    """The part of the GPUs of each row of nodes that was allocated in each bin of time."""

    rows: list[str]
    allocated_frac: Array


def bars(course: Course, most: int) -> Bars | None:
    """The bars of a run, or None for more than ``most`` bars or more nodes than a chart can show."""
    if len(course.node_names) > MOST_NODES or len(course.job) > most:
        return None
    found = list(_pieces(course))
    if len(found) > most:
        return None
    stay, top, height = (np.array(column) for column in zip(*found, strict=True)) if found else (np.zeros(0, "i8"),) * 3
    return Bars(stay, top, height)


def _pieces(course: Course) -> Iterator[tuple[int, float, float]]:
    """One piece for each run of neighbouring devices of a stay; jobs that share a device lie in parts of its lane."""
    sharing: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for stay in np.argsort(course.begin_s, kind="stable").tolist():
        node, devices = int(course.node[stay]), int(course.devices[stay])
        lane = (1 - 2 * _MARGIN) / max(1, int(course.node_gpus[node]))
        share = float(course.allocated[stay]) / max(1, devices.bit_count())
        for first, count in device_runs(devices):
            offset = 0.0
            if share < 1:
                span = (float(course.begin_s[stay]), float(course.end_s[stay]))
                offset = _beside(sharing.setdefault((node, first), []), span, share)
            yield stay, node + _MARGIN + lane * (first + offset), lane * (count if share >= 1 else count - 1 + share)


def device_runs(devices: int) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of set bits."""
    first = 0
    while devices >> first:
        if devices >> first & 1:
            rest = devices >> first
            count = (~rest & rest + 1).bit_length() - 1
            yield first, count
            first += count
        else:
            first += 1


def _beside(lane: list[tuple[float, float, float]], span: tuple[float, float], share: float) -> float:
    """The lowest free part of a device's lane for a job that shares it; the lane keeps (offset, share, until)."""
    begin_s, end_s = span
    lane[:] = sorted(place for place in lane if place[2] > begin_s)
    offset = 0.0
    for taken, width, _ in lane:
        if taken - offset >= share - 1e-9:
            break
        offset = max(offset, taken + width)
    if offset + share > 1 + 1e-6:
        offset = 0.0
    lane.append((offset, share, end_s))
    return offset


def fullness(course: Course, edges_s: Array, most_rows: int = MOST_NODES) -> Fullness:
    """How full the nodes were over time; neighbours share a row where there are more than ``most_rows``."""
    count = len(course.node_names)
    each = -(-count // most_rows)
    rows = -(-count // each)
    row_of = np.arange(count) // each
    row = row_of[course.node]
    allocated = time_average(
        np.concatenate((course.begin_s, course.end_s)),
        np.concatenate((course.allocated, -course.allocated)),
        edges_s,
        np.concatenate((row, row)),
        rows,
    )
    gpus = np.bincount(row_of, course.node_gpus, rows)
    names = [_row_name(course, first, min(first + each, count) - 1) for first in range(0, count, each)]
    return Fullness(names, np.clip(allocated / np.maximum(gpus, 1)[:, None], 0.0, 1.0))


def _row_name(course: Course, first: int, last: int) -> str:
    names = course.node_names
    return names[first] if first == last else f"{names[first]}–{names[last]}"
