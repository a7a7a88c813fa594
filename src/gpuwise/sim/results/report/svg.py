"""Charts as SVG: axes, grid, lines, steps, bars and maps.

The drawing is stretched to whatever width the page has, on a canvas of 10,000 by 10,000 units; the words beside it are
HTML, placed in per cent, so that they stay as large as the reader's other text.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuwise.core.tables import Array
from gpuwise.sim.results.ticks import Tick

CANVAS = 10_000
COLOURS = 8
"""Colours in the style sheet; a ninth line takes the first colour again, dashed."""
SHADES = 10
"""Shades of a map, for tenths."""


@dataclass(frozen=True)
class Axis:
    """A range of values with marks."""

    low: float
    high: float
    ticks: Sequence[Tick]
    label: str
    log: bool = False
    lines: Sequence[float] | None = None
    """Where lines of the grid go if not at the marks."""

    def at(self, values: Any) -> Array:
        """Where values lie from 0 to 1; what is outside lies at the nearest end."""
        inside = np.clip(np.asarray(values, dtype="f8"), self.low, self.high)
        if self.log:
            inside = np.log(inside / self.low) / math.log(self.high / self.low)
        else:
            inside = (inside - self.low) / ((self.high - self.low) or 1.0)
        placed: Array = inside
        return placed

    def marks(self) -> list[tuple[float, str]]:
        """Where the words go, from 0 to 1, and what they are."""
        return [(float(self.at(value)), text) for value, text in self.ticks]

    def grid(self) -> list[float]:
        """Where the lines of the grid go, from 0 to 1."""
        return [at for at, _ in self.marks()] if self.lines is None else [float(self.at(at)) for at in self.lines]


@dataclass(frozen=True)
class Chart:
    """A drawing with its axes, a description, and the numbers that the pointer shows."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    body: str
    data: Any
    height_px: int = 260

    def svg(self) -> str:
        """The drawing without the words of its axes."""
        title, description = html.escape(self.title), html.escape(self.description)
        name = self.name
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CANVAS} {CANVAS}" preserveAspectRatio="none" '
            f'role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{title}</title>'
            f'<desc id="{name}-desc">{description}</desc><path class="grid" d="{self._grid()}"/>{self.body}</svg>'
        )

    def html(self) -> str:
        """The drawing with the words of its axes and its numbers."""
        return (
            f'<div class="frame"><div class="y-label">{html.escape(self.y.label)}</div>'
            f'<div class="plot" data-chart="{self.name}" style="height:{self.height_px}px">{self.svg()}'
            f"{self._x_words()}{self._y_words()}</div>"
            f'<div class="x-label">{html.escape(self.x.label)}</div>{json_block(self.data)}</div>'
        )

    def _grid(self) -> str:
        upright = [f"M{_unit(at)} 0V{CANVAS}" for at in self.x.grid()]
        level = [f"M0 {CANVAS - _unit(at)}H{CANVAS}" for at in self.y.grid()]
        return "".join(upright + level)

    def _x_words(self) -> str:
        return "".join(
            f'<span class="x tick{" odd" if i % 2 else ""}" style="left:{100 * at:.2f}%">{html.escape(text)}</span>'
            for i, (at, text) in enumerate(self.x.marks())
        )

    def _y_words(self) -> str:
        return "".join(
            f'<span class="y tick" style="top:{100 - 100 * at:.2f}%">{html.escape(text)}</span>'
            for at, text in self.y.marks()
        )


def steps(heights: Iterable[float]) -> str:
    """A path of equal steps from the left edge to the right; heights are from 0 to 1."""
    tops = [CANVAS - _unit(height) for height in heights]
    path = [f"M0 {tops[0]}"] if tops else []
    for i, top in enumerate(tops):
        if i and top != tops[i - 1]:
            path.append(f"H{i * CANVAS // len(tops)}V{top}")
    return "".join(path) + f"H{CANVAS}"


def stairs(across: Iterable[float], up: Iterable[float]) -> str:
    """A path that rises at each point to its height and then stays level, as a cumulative distribution does."""
    path = [f"M0 {CANVAS}"]
    path += [f"H{_unit(x)}V{CANVAS - _unit(y)}" for x, y in zip(across, up, strict=True)]
    return "".join(path) + f"H{CANVAS}"


def line(number: int, path: str, kind: str = "") -> str:
    """A line in the colour of a policy, by the policy's number."""
    dashed = " dashed" if number // COLOURS % 2 else ""
    return f'<path class="line c{number % COLOURS}{dashed} {kind}" data-policy="{number}" d="{path}"/>'


def rectangles(left: Array, top: Array, width: Array, height: Array, group: Array, prefix: str) -> str:
    """Rectangles, measured from 0 to 1, as one path for each group; ``prefix`` and the group make the class."""
    # Edges are rounded, not widths: neighbours then meet without a seam.
    x0, y0, x1, y1 = (np.rint(edge * CANVAS).astype("i8") for edge in (left, top, left + width, top + height))
    sizes = (x0, y0, x1 - x0, y1 - y0, group)
    paths: dict[int, list[str]] = {}
    for x, y, w, h, number in zip(*(values.tolist() for values in sizes), strict=True):
        paths.setdefault(number, []).append(f"M{x} {y}h{w}v{h}h-{w}z")
    return "".join(f'<path class="{prefix}{number}" d="{"".join(paths[number])}"/>' for number in sorted(paths))


def shaded(values: Array) -> str:
    """A map of rows by columns of values from 0 to 1, in tenths; equal neighbours in a row become one rectangle."""
    rows, columns = values.shape
    shades = tenths(values)
    starts = np.ones_like(shades, dtype=bool)
    starts[:, 1:] = shades[:, 1:] != shades[:, :-1]
    row, column = np.nonzero(starts)
    following = np.append(column[1:], 0)
    end = np.where(np.append(row[1:], rows) == row, following, columns)
    shade = shades[row, column]
    kept = shade > 0
    row, column, end, shade = row[kept], column[kept], end[kept], shade[kept]
    height = np.full(len(row), 1 / rows)
    return rectangles(column / columns, row / rows, (end - column) / columns, height, shade, "shade s")


def tenths(values: Array) -> Array:
    """Values from 0 to 1 as whole tenths; only what is nearly nothing is 0."""
    whole: Array = np.clip(np.ceil(values * SHADES - 0.05), 0, SHADES).astype("i8")
    return whole


def json_block(data: Any) -> str:
    """Numbers for the script; ``<`` is written so that nothing in them can end the block."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>'


def _unit(part: float) -> int:
    return round(part * CANVAS)
