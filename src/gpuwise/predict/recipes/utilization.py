"""The shipped predictor of GPU utilization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Estimates, rows_where
from gpuwise.predict.data.miso_utilization import miso_utilization
from gpuwise.predict.data.papers import mlperf_utilization, packing_utilization
from gpuwise.predict.data.tables import stacked
from gpuwise.predict.recipe import Recipe
from gpuwise.predict.scores import Holdout, Target
from gpuwise.predict.utilization import GpuUtilization

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
    estimates = _predicted_without(every)
    yield _holdout("utilization-model-unseen", every, estimates, np.ones(len(every["data"]), dtype=np.bool_))
    for name in sorted(set(every["data"].tolist())):
        yield _holdout(f"utilization-model-unseen-{name}", every, estimates, every["data"] == name)
    alone = _predicted_without(shipped)
    yield _holdout("utilization-as-shipped", shipped, alone, np.ones(len(shipped["data"]), dtype=np.bool_))


def _predicted_without(rows: Table) -> Estimates:
    models = rows["architecture"]
    parts = np.full((3, len(models)), np.nan)
    inside = np.zeros(len(models), dtype=np.bool_)
    for model in sorted(set(models.tolist())):
        out = models == model
        seen = rows_where(rows, ~out)
        made = GpuUtilization().fit(seen, seen["util_pct"]).estimate(rows_where(rows, out))
        parts[:, out], inside[out] = (made.value, made.low, made.high), made.in_domain
    return Estimates(parts[0], parts[1], parts[2], inside)


def _holdout(name: str, rows: Table, of: Estimates, mask: NDArray[np.bool_]) -> Holdout:
    kept = rows_where(rows, mask)
    return Holdout(
        name=name,
        predictor="utilization",
        data=tuple(sorted(set(kept["data"].tolist()))),
        left_out="one architecture at a time",
        unit="%",
        measured=kept["util_pct"],
        estimates=Estimates(of.value[mask], of.low[mask], of.high[mask], of.in_domain[mask]),
        labels=[f"{label} batch {batch:g}" for label, batch in zip(kept["label"], kept["batch_size"], strict=True)],
        group=[str(each) for each in kept["data"]],
        targets=TARGETS,
        note="measured step times stand in for the time model",
    )


RECIPES = (
    Recipe(
        name="utilization",
        what="GPU utilization in percent of a training job",
        data=("miso",),
        fit=fit,
        holdouts=holdouts,
    ),
)
