"""The shipped predictor of how a job grows over GPUs, and the error of surfaces of jobs that were measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Estimates, PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data.tables import read_available, stacked
from gpuwise.predict.fitting.recipe import Recipe, all_rows, each_of, in_parts
from gpuwise.predict.fitting.recipes.end_to_end import elasticflow_times, gavel_times, pollux_times
from gpuwise.predict.fitting.scores import Holdout
from gpuwise.predict.intervals.conformal import folds
from gpuwise.predict.scaling.data_parallel import AllReduceScaling, TypicalScaling

Table = dict[str, NDArray[Any]]
FOLDS = 5


def beside_one(rows: Table) -> Table:
    """Rows on several GPUs of jobs that were also measured on one with the same batch per GPU."""
    alone = {
        (job, batch): time_s
        for job, batch, gpus, time_s in zip(rows["job"], rows["batch"], rows["gpus"], rows["time_s"], strict=True)
        if gpus == 1
    }
    solo = np.array([alone.get(each, np.nan) for each in zip(rows["job"], rows["batch"], strict=True)])
    return rows_where({**rows, "step_time_s": solo}, (rows["gpus"] > 1) & np.isfinite(solo))


def fit(data: Path) -> TypicalScaling:
    """From gavel."""
    rows = beside_one(gavel_times(data))
    return TypicalScaling().fit(rows, rows["time_s"])


def several_gpus(data: Path) -> Table:
    """Gavel's and pollux' rows on several GPUs, with the time on one."""
    return beside_one(stacked(read_available((gavel_times, pollux_times), data)))


def typical_holdouts(data: Path) -> Iterator[Holdout]:
    """Models that have only run on one GPU."""
    rows = several_gpus(data)
    asked, parts = [], []
    for mine in each_of(rows["model"]):
        known = TypicalScaling().fit(rows_where(rows, ~mine), rows["time_s"][~mine])
        asked.append(rows_where(rows, mine))
        parts.append(known.estimate(asked[-1]))
    yield _holdout("scaling-model-unseen", "TypicalScaling", asked, parts, "one model at a time, on several GPUs")


def placement_holdouts(data: Path) -> Iterator[Holdout]:
    """Placements left out of the surfaces of measured jobs."""
    asked, parts = [], []
    for table in read_available((gavel_times, elasticflow_times, pollux_times), data):
        for job in np.unique(table["job"]):
            rows = rows_where(table, table["job"] == job)
            places = [f"{gpus:g}/{nodes:g}" for gpus, nodes in zip(rows["gpus"], rows["nodes"], strict=True)]
            if len(set(places)) < 3:
                continue
            for out in folds(places, FOLDS):
                known = AllReduceScaling().fit(rows_where(rows, ~out), rows["time_s"][~out])
                asked.append(rows_where(rows, out))
                parts.append(known.estimate(asked[-1]))
    yield _holdout(
        "scaling-placements", "AllReduceScaling", asked, parts, "a fifth of the placements (GPUs and nodes) at a time"
    )


def _holdout(name: str, predictor: str, asked: list[Table], parts: list[Estimates], left_out: str) -> Holdout:
    if not asked:
        raise PredictionError(f"{name}: no job in the data has run on enough sizes")
    rows = stacked(asked)
    labels = [f"{job} {gpus:g} GPUs" for job, gpus in zip(rows["job"], rows["gpus"], strict=True)]
    data = tuple(dict.fromkeys(str(each) for each in rows["data"]))
    return Holdout(
        name, predictor, data, left_out, "s", rows["time_s"], Estimates.joined(parts), labels, list(rows["data"])
    )


holdouts = in_parts(typical_holdouts, placement_holdouts)


def in_use(data: Path, predictor: TypicalScaling) -> Iterator[Holdout]:
    """Rows on several GPUs of jobs that were also measured on one."""
    rows = several_gpus(data)
    names = tuple(sorted(set(rows["data"].tolist())))
    yield all_rows("scaling-in-use", predictor, rows, "time_s", "s", names, "data")


RECIPES = (
    Recipe("scaling", "step time on several GPUs of a job that has only run on one", ("gavel",), fit, holdouts, in_use),
)
