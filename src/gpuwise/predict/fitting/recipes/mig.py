"""The shipped predictor of step times on MIG slices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpuwise.predict.base import Bools, Columns, Estimates
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data.miso import mig_times
from gpuwise.predict.fitting.recipe import Recipe, all_rows, each_of
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.sharing.mig import MigTime

_IN_VIEW = "parameters never saw the left-out model, the choice of formula did: expect more error for a new one"
SLICE_TARGETS = (Target("mape", 0.15, 0.08), Target("coverage", 0.85, 0.88))


def fit(data: Path) -> MigTime:
    """From MISO's mean iteration times on an A100."""
    rows = mig_times(data)
    return MigTime().fit(rows, rows["time_s"])


def holdouts(data: Path) -> Iterator[Holdout]:
    """One model left out at a time: with its utilization known, and not."""
    mean = mig_times(data)
    yield _model_out(
        "mig-model-unseen", mean, known=True, targets=SLICE_TARGETS, note=f"mean over iterations; {_IN_VIEW}"
    )
    median = mig_times(data, "median")
    yield _model_out("mig-model-unseen-median", median, known=True, note=f"median over iterations; {_IN_VIEW}")
    yield _model_out("mig-model-and-utilization-unseen", mean, known=False, note="mean; utilization not known either")


def _model_out(
    name: str, rows: dict[str, np.ndarray], *, known: bool, targets: tuple[Target, ...] = (), note: str
) -> Holdout:
    def made() -> Iterator[tuple[Bools, Estimates]]:
        for out in each_of(rows["model"]):
            seen, asked = rows_where(rows, ~out), rows_where(rows, out)
            yield out, MigTime().fit(seen, seen["time_s"]).estimate(asked if known else _blind(asked))

    labels = [
        f"{model} batch {batch:g} on {profile}"
        for model, batch, profile in zip(rows["model"], rows["batch_size"], rows["profile"], strict=True)
    ]
    return Holdout(
        name=name,
        predictor="mig",
        data=("miso",),
        left_out="one model at a time",
        unit="s",
        measured=rows["time_s"],
        estimates=Estimates.spread(len(rows["time_s"]), made()),
        labels=labels,
        group=[str(model) for model in rows["model"]],
        targets=targets,
        note=note,
    )


def _blind(rows: dict[str, np.ndarray]) -> Columns:
    nothing = np.full(len(rows["time_s"]), np.nan)
    return {**rows, "gpu_util_frac": nothing, "mem_util_frac": nothing}


def in_use(data: Path, predictor: MigTime) -> Iterator[Holdout]:
    """All slices of MISO's jobs, with their utilization known."""
    yield all_rows("mig-in-use", predictor, mig_times(data), "time_s", "s", ("miso",), "model")


RECIPES = (
    Recipe(
        name="mig",
        what="the time of a training step on a slice of a GPU with MIG",
        data=("miso",),
        fit=fit,
        holdouts=holdouts,
        in_use=in_use,
    ),
)
