"""The shipped predictor of the steps until a run reaches its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Estimates, Floats
from gpuwise.predict.columns import rows_where
from gpuwise.predict.convergence.loss_curve import LEAST_POINTS
from gpuwise.predict.convergence.steps_to_target import StepsToTarget
from gpuwise.predict.convergence.training_runs import ALONE, BESIDE, METHODS, Run, common_target
from gpuwise.predict.fitting.data import pollux, zeus
from gpuwise.predict.fitting.data.tables import read_available, stacked
from gpuwise.predict.fitting.recipe import Recipe, all_rows, each_of, in_parts
from gpuwise.predict.fitting.scores import Holdout, Target

Table = dict[str, NDArray[Any]]
TARGETS = (Target("mape", 0.20, 0.10), Target("coverage", 0.85, 0.88))
LEAST_LEFT = 1e-3
"""Epochs left by a prediction that a run should have reached its target already."""
LEAST_EPOCHS = 4
"""Runs that reach the target sooner have no meaningful half: they are fitted to, but not predicted."""


def runs(data: Path, name: str) -> Table:
    """The runs of a data set that reach the target of their workload (`common_target`), with their total of epochs."""
    rows = {"pollux": pollux.curves, "zeus": zeus.curves}[name](data)
    target, total = np.zeros(len(rows["run"])), np.full(len(rows["run"]), np.nan)
    for workload in np.unique(rows["workload"]):
        mine = np.flatnonzero(rows["workload"] == workload)
        goal = _goal([rows["values"][row] for row in mine], listed=name == "zeus")
        for row in mine:
            run = Run.of(str(workload), float(rows["batch"][row]), rows["steps"][row], rows["values"][row], goal)
            target[row], total[row] = goal, float(run.reached(run.target))
    made = {**rows, "data": np.full(len(total), name), "target": target, "total": total}
    return rows_where(made, np.isfinite(total))


def _goal(values: Sequence[Floats], listed: bool) -> float:
    """The workload's target; where only some values are listed, the nearest of them that is no harder."""
    goal = common_target(values)
    if not listed:
        return goal
    levels = np.unique(np.concatenate(values))
    rises = goal > np.median([each[0] for each in values])
    return float(levels[levels <= goal + 1e-9].max() if rises else levels[levels >= goal - 1e-9].min())


def fit(data: Path) -> StepsToTarget:
    """From zeus."""
    rows = runs(data, "zeus")
    return StepsToTarget().fit(rows, rows["total"])


def half_way(rows: Table) -> Table:
    """What was known of each run at half of its steps to the target."""
    seen = [steps <= total / 2.0 for steps, total in zip(rows["steps"], rows["total"], strict=True)]
    cut = {name: np.empty(len(seen), dtype=object) for name in ("steps", "values")}
    for row, known in enumerate(seen):
        for name in cut:
            cut[name][row] = rows[name][row][known]
    return {**rows, **cut}


def predicted_half_way(rows: Table, groups: NDArray[Any], ways: Sequence[str] = METHODS) -> tuple[Table, Estimates]:
    """Each group of runs predicted half-way, with the runs of all other groups known whole."""
    whole = StepsToTarget(ways).fit(rows, rows["total"])
    then = half_way(rows)
    made = (
        (mine, whole.without(np.flatnonzero(mine).tolist()).estimate(rows_where(then, mine)))
        for mine in each_of(groups)
    )
    long = rows["total"] >= LEAST_EPOCHS
    if not set(ways) & set(BESIDE):
        long &= np.array([len(steps) >= LEAST_POINTS for steps in then["steps"]])
    return rows_where(rows, long), Estimates.spread(len(groups), made).rows(long)


def _holdout(name: str, data: Path, by: str, ways: Sequence[str], left_out: str, note: str = "") -> Holdout:
    """Total epochs, predicted half-way."""
    tables, parts = [], []
    for rows in read_available([partial(runs, name=source) for source in ("pollux", "zeus")], data):
        pairs = zip(rows["workload"], rows["batch"], strict=True)
        groups = rows["workload"] if by == "workload" else np.array([f"{work} {batch:g}" for work, batch in pairs])
        table, made = predicted_half_way(rows, groups, ways)
        tables.append(table)
        parts.append(made)
    rows = stacked(tables)
    labels, source_of = list(rows["run"]), list(rows["data"])
    return Holdout(
        name,
        "StepsToTarget",
        tuple(dict.fromkeys(source_of)),
        left_out,
        "epochs",
        rows["total"],
        Estimates.joined(parts),
        labels,
        source_of,
        (),
        note,
    )


def remaining(whole: Holdout, name: str, targets: tuple[Target, ...] = ()) -> Holdout:
    """The epochs that remain, from a holdout of their total: half of them are done at the prediction."""
    done = whole.measured / 2.0
    made = whole.estimates
    value, low, high = (np.maximum(each - done, LEAST_LEFT) for each in (made.value, made.low, made.high))
    note = whole.note.replace("error of the total", "error of what remains")
    left = Estimates(value, low, high, made.in_domain)
    return replace(whole, name=name, measured=whole.measured - done, estimates=left, targets=targets, note=note)


def batch_holdouts(data: Path) -> Iterator[Holdout]:
    """Runs predicted half-way with other batch sizes of the workload known: what remains, and the total."""
    note = "error of the total"
    half = "one batch size of a workload at a time: the second half of its runs"
    whole = _holdout("convergence-half-way-total", data, "batch", METHODS, half, note)
    yield remaining(whole, "convergence-half-way", TARGETS)
    yield whole


def workload_holdouts(data: Path) -> Iterator[Holdout]:
    """Runs predicted half-way from themselves alone: what remains, and the total; by all methods, and as published."""
    note = "error of the total; runs with at least three points by then"
    half = "one workload at a time: the second half"
    whole = _holdout("convergence-workload-unseen-total", data, "workload", ALONE, half, note)
    yield remaining(whole, "convergence-workload-unseen")
    yield whole
    note += "; Optimus' curve alone, at most four times what was done"
    whole = _holdout("convergence-published-total", data, "workload", ("hyperbola",), half, note)
    yield remaining(whole, "convergence-published")
    yield whole


holdouts = in_parts(batch_holdouts, workload_holdouts)


def half_way_in_use(data: Path, predictor: StepsToTarget) -> Iterator[Holdout]:
    """All runs, predicted half-way."""
    rows = stacked(read_available([partial(runs, name=source) for source in ("pollux", "zeus")], data))
    long = half_way(rows_where(rows, rows["total"] >= LEAST_EPOCHS))
    names = tuple(dict.fromkeys(long["data"].tolist()))
    yield all_rows("convergence-in-use-total", predictor, long, "total", "epochs", names, "data")


RECIPES = (
    Recipe(
        "convergence",
        "epochs until a run reaches its target, asked while it runs",
        ("zeus",),
        fit,
        holdouts,
        half_way_in_use,
    ),
)
