"""The shipped predictor of GPU utilization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpuwise.predict.fitting.data.tables import stacked
from gpuwise.predict.fitting.data.utilization import miso_utilization, mlperf_utilization, packing_utilization
from gpuwise.predict.fitting.recipe import Recipe, all_rows, each_of, left_out
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.time.utilization import GpuUtilization

Table = dict[str, NDArray[Any]]
TARGETS = (Target("rmsle", 0.20, 0.10), Target("coverage", 0.85, 0.88))


def fit(data: Path) -> GpuUtilization:
    """From MISO's jobs on an A100; the tables of papers are for measuring errors only."""
    rows = miso_utilization(data)
    return GpuUtilization().fit(rows, rows["util_pct"])


def holdouts(data: Path) -> Iterator[Holdout]:
    """One architecture left out at a time, wherever it occurs: of MISO and both papers together, and of MISO alone."""
    shipped = miso_utilization(data)
    every = stacked([shipped, mlperf_utilization(), packing_utilization()])
    whole = _holdout("utilization-model-unseen", every)
    yield whole
    for name in sorted(set(every["data"].tolist())):
        yield replace(whole.rows(every["data"] == name), name=f"utilization-model-unseen-{name}", data=(name,))
    yield _holdout("utilization-as-shipped", shipped)


def _holdout(name: str, rows: Table) -> Holdout:
    def fitted(seen: Table) -> GpuUtilization:
        return GpuUtilization().fit(seen, seen["util_pct"])

    return Holdout(
        name=name,
        predictor="utilization",
        data=tuple(sorted(set(rows["data"].tolist()))),
        left_out="one architecture at a time",
        unit="%",
        measured=rows["util_pct"],
        estimates=left_out(rows, each_of(rows["architecture"]), fitted),
        labels=[f"{label} batch {batch:g}" for label, batch in zip(rows["label"], rows["batch_size"], strict=True)],
        group=[str(each) for each in rows["data"]],
        targets=TARGETS,
        note="measured step times stand in for the time model",
    )


def in_use(data: Path, predictor: GpuUtilization) -> Iterator[Holdout]:
    """MISO's jobs."""
    yield all_rows("utilization-in-use", predictor, miso_utilization(data), "util_pct", "%", ("miso",), "data")


RECIPES = (
    Recipe(
        name="utilization",
        what="GPU utilization in percent of a training job",
        data=("miso",),
        fit=fit,
        holdouts=holdouts,
        in_use=in_use,
    ),
)
