"""One answer to "how long does a step take?": from measured times where there are some, else from the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.graph.ops import Graph
from gpuwise.predict.base import COVERAGE, Bools, Columns, Estimates, Floats, Predictor
from gpuwise.predict.columns import floats, strings
from gpuwise.predict.time.gpu_rates import canonical
from gpuwise.predict.time.roofline import RooflineTime
from gpuwise.predict.time.transfer import GpuTransfer, known_elsewhere
from gpuwise.predict.time.work import work

BY = ("gpu", "precision", "layout", "model")
NEARBY, FAMILY, ROOFLINE = "measured nearby", "model family", "roofline"


class StepTime(Predictor):
    """Seconds of a training step on one GPU.

    Columns: those of `RooflineTime` (``gpu``, ``precision``, the network's work, optional ``layout`` and ``host``), and
    optional ``measured``: for each row a mapping of GPU names to seconds that the same job took there, may be empty.
    Rows with measured times are answered by `GpuTransfer`, the others by `RooflineTime`. To fit, ``family`` and
    ``model`` are needed too.
    """

    def __init__(self, trees: int = 60, seed: int = 0) -> None:
        self.trees = trees
        self.seed = seed

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Fits both: to all steps, and to networks that were measured on several GPUs."""
        self.roofline_ = RooflineTime(trees=self.trees, seed=self.seed).fit(X, y)
        times = np.asarray(y, dtype=np.float64)
        gpus, models, precisions = strings(X, "gpu"), strings(X, "model"), strings(X, "precision")
        jobs = [" ".join(each) for each in zip(models, precisions, map(str, floats(X, "batch")), strict=True)]
        known = known_elsewhere(jobs, gpus, times)
        shared = np.asarray([bool(each) for each in known], dtype=np.bool_)
        self.transfer_: GpuTransfer | None = None
        if shared.any():
            rows = {"gpu": np.asarray(gpus)[shared], "precision": np.asarray(precisions)[shared]}
            self.transfer_ = GpuTransfer().fit(rows | {"measured": known[shared]}, times[shared])
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Seconds of each step; `sources` gives the origin of each."""
        self._check_fitted()
        nearby = self._nearby(X)
        out = self.roofline_.estimate(X, coverage)
        if self.transfer_ is not None and nearby.any():
            names = ("gpu", "precision", "measured")
            part = self.transfer_.estimate({name: _take(X[name], nearby) for name in names}, coverage)
            out.value[nearby], out.low[nearby], out.high[nearby] = part.value, part.low, part.high
            out.in_domain[nearby] = part.in_domain
        return out

    def sources(self, X: Columns) -> list[str]:  # noqa: N803
        """Where each answer comes from: measured nearby, model family (the GPU was measured), or roofline."""
        self._check_fitted()
        inside = self.roofline_.estimate(X).in_domain
        pairs = zip(self._nearby(X), inside, strict=True)
        return [NEARBY if near else FAMILY if known else ROOFLINE for near, known in pairs]

    def gpu_seconds(self, X: Columns) -> Floats:  # noqa: N803
        """How long each step keeps the GPU busy, from the graph."""
        self._check_fitted()
        return np.asarray(self.roofline_.predict(X) * self.roofline_.busy_share(X))

    def operator_times(self, graph: Graph, gpu: str, layout: str = "nchw") -> Floats:
        """Seconds of each operator of a graph: its part of the step by its own work, scaled to the step's estimate."""
        self._check_fitted()
        whole = step_columns(graph, [gpu], layout)
        rows = [work(replace(graph, ops=(op,))) for op in graph.ops]
        names = sorted({name for row in rows for name in row})
        each = step_columns(graph, [gpu] * len(rows), layout)
        each |= {name: np.asarray([row.get(name, 0.0) for row in rows]) for name in names}
        seconds = self.roofline_.gpu_seconds(
            {name: column for name, column in each.items() if name in names or name in BY}
        )
        return np.asarray(seconds * self.roofline_.predict(whole)[0] / seconds.sum())

    def _nearby(self, X: Columns) -> Bools:  # noqa: N803
        try:
            column = X["measured"]
        except KeyError:
            return np.zeros(len(strings(X, "gpu")), dtype=np.bool_)
        return np.asarray([bool(known) for known in column], dtype=np.bool_) & (self.transfer_ is not None)


def step_columns(
    graph: Graph, gpus: Sequence[str], layout: str = "nchw", measured: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """A graph on each of some GPUs, as `StepTime` takes it; ``measured`` are times of the same job, by GPU."""
    row, count = work(graph), len(gpus)
    columns: dict[str, Any] = {name: np.full(count, value) for name, value in row.items()}
    columns |= {
        "gpu": canonical(gpus),
        "model": [graph.model] * count,
        "precision": [str(graph.precision)] * count,
        "layout": [layout] * count,
    }
    return columns | ({} if measured is None else {"measured": [dict(measured)] * count})


def _take(column: Any, which: Bools) -> list[Any]:
    return [value for value, kept in zip(column, which, strict=True) if kept]
