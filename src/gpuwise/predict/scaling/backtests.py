"""The runs of one job at several sizes, and back tests: its larger sizes predicted from its smaller ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np

from gpuwise.predict.base import Bools, Floats, packable
from gpuwise.predict.scaling.surface import Shape, StepSurface

AXES = ("batch", "gpus", "inside")
SHAPES = {
    "batch": (
        *(Shape(1.0, superlinear, recency) for superlinear in (False, True) for recency in (0.0, 2.0, 4.0)),
        Shape(2.0, False, 2.0),
        Shape(4.0, False, 2.0),
        *(Shape(overlap, superlinear, 2.0, True) for overlap in (2.0, 4.0) for superlinear in (False, True)),
    ),
    "gpus": (
        Shape(1.0, True, 0.0),
        Shape(1.0, True, 1.0),
        Shape(1.0, False, 0.0, True),
        Shape(1.0, False, 2.0, True),
    ),
    "inside": (Shape(1.0, True), Shape(2.0, True), Shape(2.0, True, 0.0, True)),
}
"""The forms of surface that are tried, by what is predicted: a larger batch, more GPUs, or in between."""
DEPTHS = (1, 2, 3)
"""Back tests leave out what is above half, a quarter, an eighth of the largest size."""


class BackTest:
    """What each form predicted for the largest sizes of a job, without having seen them."""

    def __init__(self, depth: int, cut: float, rows: Floats, residuals: Floats) -> None:
        self.depth = depth
        self.cut = cut
        """The largest size that was seen."""
        self.rows = rows
        """Batch, GPUs and nodes of each row."""
        self.residuals = residuals
        """log(measured / predicted), rows × forms."""

    @cached_property
    def error(self) -> Floats:
        """The mean error of each form, in log."""
        return np.asarray(np.mean(np.abs(self.residuals), axis=0))


@packable
class JobHistory:
    """The runs of one job, and back tests on them."""

    def __init__(self, cluster: str, rows: Floats, step_s: Floats, tests: Mapping[str, list[BackTest]]) -> None:
        self.cluster = cluster
        self.rows = rows
        self.step_s = step_s
        self.tests = tests
        self._surfaces: dict[str, list[StepSurface]] = {}

    @classmethod
    def of(cls, cluster: str, rows: Floats, step_s: Floats) -> Self:
        """With the back tests that its rows allow."""
        tests = {axis: list(_back_tests(rows, step_s, axis)) for axis in AXES}
        return cls(cluster, rows, step_s, tests)

    def log_step_s(self, rows: Floats, axis: str) -> Floats:
        """log of the step time by each form: rows × forms."""
        if axis not in self._surfaces:
            self._surfaces[axis] = _surfaces(self.rows, self.step_s, axis)
        return _logs(self._surfaces[axis], rows)

    def axis_of(self, rows: Floats) -> list[str]:
        """The axis of each row: more GPUs than ever, a larger batch than ever at about that size, or in between."""
        found = []
        for batch, gpus, _ in rows:
            alike = self.rows[np.abs(np.log2(self.rows[:, 1] / gpus)) <= 1.0]
            if gpus > self.rows[:, 1].max():
                found.append("gpus")
            else:
                found.append("batch" if not len(alike) or batch > alike[:, 0].max() else "inside")
        return found

    def reaches(self, rows: Floats) -> Bools:
        """Up to twice the largest, and down to half of the smallest, batch and number of GPUs that were measured."""
        low, high = self.rows[:, :2].min(axis=0) / 2.0, self.rows[:, :2].max(axis=0) * 2.0
        return np.asarray(np.all((rows[:, :2] >= low) & (rows[:, :2] <= high), axis=1))

    def measured_between(self, rows: Floats, coverage: float) -> tuple[Floats, Floats]:
        """The ends of what was measured at just these sizes (finite number corrected); nan where measured only once."""
        ends = np.full((2, len(rows)), np.nan)
        sizes, index, counts = np.unique(self.rows, axis=0, return_inverse=True, return_counts=True)
        for size in np.flatnonzero(counts > 1):
            at = np.flatnonzero(np.all(rows == sizes[size], axis=1))
            if len(at):
                rank = np.ceil((counts[size] + 1) * (1.0 + coverage) / 2.0)  # as Conformal counts
                level = min(1.0, (rank - 1.0) / (counts[size] - 1.0))
                ends[:, at] = np.quantile(self.step_s[index.ravel() == size], [1.0 - level, level])[:, None]
        return ends[0], ends[1]

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        tests = {
            axis: [[each.depth, each.cut, each.rows.tolist(), _short(each.residuals)] for each in tests]
            for axis, tests in self.tests.items()
        }
        return {"cluster": self.cluster, "rows": self.rows.tolist(), "step_s": self.step_s.tolist(), "tests": tests}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        tests = {
            axis: [
                BackTest(depth, cut, np.asarray(rows), np.asarray(residuals)) for depth, cut, rows, residuals in tests
            ]
            for axis, tests in document["tests"].items()
        }
        return cls(document["cluster"], np.asarray(document["rows"]), np.asarray(document["step_s"]), tests)


def _short(table: Floats) -> list[list[float]]:
    return [[float(f"{each:.5g}") for each in row] for row in table]


def _surfaces(rows: Floats, step_s: Floats, axis: str) -> list[StepSurface]:
    along = "gpus" if axis == "gpus" else "batch"
    return [StepSurface(shape).fit(rows[:, 0], rows[:, 1], rows[:, 2], step_s, along) for shape in SHAPES[axis]]


def _logs(surfaces: list[StepSurface], rows: Floats) -> Floats:
    return np.stack([np.log(surface(rows[:, 0], rows[:, 1], rows[:, 2])) for surface in surfaces], axis=1)


def largest(rows: Floats, axis: str, depth: int = 1) -> tuple[Bools, Bools]:
    """Which rows to leave out as the largest, and which to keep: above and up to 1/2^depth of the largest size.

    Along ``batch`` the largest batch counts for each number of GPUs and nodes by itself, since memory limits it there;
    at least two sizes are kept. Rows above 2/2^depth are in neither. ``inside`` leaves out every fourth row.
    """
    if axis == "inside":
        out = np.arange(len(rows)) % 4 == 1
        return (out, ~out) if len(rows) >= 8 and depth == 1 else (np.zeros_like(out), ~out)
    size = rows[:, 0] if axis == "batch" else rows[:, 1]
    series = np.unique(rows[:, 1:], axis=0, return_inverse=True)[1].ravel() if axis == "batch" else np.zeros(len(rows))
    out, keep = np.zeros(len(rows), dtype=np.bool_), np.ones(len(rows), dtype=np.bool_)
    for each in np.unique(series):
        mine = series == each
        levels = np.unique(size[mine])
        top = levels[-1] / 2.0 ** (depth - 1)
        cut = max(top / 2.0, levels[min(1, len(levels) - 1)])
        keep &= ~mine | (size <= cut)
        out |= mine & (size > cut) & (size <= top)
    return out, keep


def _back_tests(rows: Floats, step_s: Floats, axis: str) -> list[BackTest]:
    made = []
    for depth in DEPTHS:
        out, keep = largest(rows, axis, depth)
        if out.any() and len(np.unique(rows[keep], axis=0)) >= 2:
            predicted = _logs(_surfaces(rows[keep], step_s[keep], axis), rows[out])
            cut = float(rows[keep, 1 if axis == "gpus" else 0].max())
            made.append(BackTest(depth, cut, rows[out], np.log(step_s[out])[:, None] - predicted))
    return made
