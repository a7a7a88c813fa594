"""The shipped predictor of the speed of jobs that share a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Bools, Estimates, PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data.gavel import colocated_matrix, colocated_pairs
from gpuwise.predict.fitting.recipe import Recipe, all_rows, in_parts, left_out
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.intervals.conformal import folds
from gpuwise.predict.sharing.interference import Interference

Rows = dict[str, NDArray[Any]]
PAIR_TARGETS = (Target("mae", 0.05, 0.03), Target("coverage", 0.85, 0.88))
MODEL_TARGETS = (Target("mae", 0.10, 0.05), Target("coverage", 0.85, 0.88))
NOISY = ("V100",)
"""There many pairs are at odds with themselves or cut off at solo speed."""
_FOLDS = 5


def fit(data: Path) -> Interference:
    """From Gavel's pairs on K80, P100 and V100."""
    rows = colocated_pairs(data)
    return Interference().fit(rows, rows["speed"])


def pair_holdouts(data: Path) -> Iterator[Holdout]:
    """Pairs left out on all GPUs."""
    rows = colocated_pairs(data)
    steady = ~np.isin(rows["gpu"], NOISY)
    pairs = _pairs_out(rows)
    about = "pairs, each on all GPUs at once; both jobs seen in other pairs"
    yield _holdout("interference-pair-unseen", rows, pairs, steady, about, PAIR_TARGETS)
    if not steady.all():
        yield _holdout("interference-pair-unseen-noisy", rows, pairs, ~steady, about)


def matrix_holdouts(data: Path) -> Iterator[Holdout]:
    """Pairs of other networks, left out on all GPUs."""
    matrix = colocated_matrix(data)
    every = np.ones(len(matrix["speed"]), dtype=np.bool_)
    about = "pairs of nine other networks, each on all GPUs at once"
    yield _holdout("interference-matrix-pair-unseen", matrix, _pairs_out(matrix), every, about)


def model_holdouts(data: Path) -> Iterator[Holdout]:
    """Every row in which a model is involved, predicted without that model."""
    rows = colocated_pairs(data)
    parts = [(model, *_without(rows, model)) for model in sorted(set(rows["model"]))]
    asked = {name: np.concatenate([columns[name] for _, columns, _, _ in parts]) for name in rows}
    asked["left_out"] = np.concatenate([np.full(len(new), model) for model, _, new, _ in parts])
    new = np.concatenate([each for _, _, each, _ in parts])
    estimates = Estimates.joined([each for *_, each in parts])
    clean = ~np.isin(asked["gpu"], NOISY)
    about = "one model with all its batch sizes, beside a job that was seen"
    yield _holdout("interference-model-unseen", asked, estimates, clean & (new == 1), about, MODEL_TARGETS)
    about = "both jobs of one model, with all its batch sizes"
    yield _holdout("interference-both-unseen", asked, estimates, clean & (new == 2), about)
    if not clean.all():
        about = "one model with all its batch sizes, beside a job that was seen"
        yield _holdout("interference-model-unseen-noisy", asked, estimates, ~clean & (new == 1), about)


def _without(rows: Rows, model: str) -> tuple[Rows, NDArray[np.int64], Estimates]:
    """The rows of groups with a model in them, how many of the group are of that model, and estimates without it."""
    _, group = np.unique(rows["group"], return_inverse=True)
    new = np.bincount(group, weights=rows["model"] == model).astype(np.int64)[group]
    if np.all(new > 0):
        raise PredictionError(f"every pair has {model} in it: with it left out nothing remains to fit to")
    known = rows_where(rows, new == 0)
    asked = rows_where(rows, new > 0)
    return asked, new[new > 0], Interference().fit(known, known["speed"]).estimate(asked)


def _pairs_out(rows: Rows) -> Estimates:
    jobs = np.array([f"{model}/{batch:g}" for model, batch in zip(rows["model"], rows["batch_size"], strict=True)])
    _, group = np.unique(rows["group"], return_inverse=True)
    members = [" + ".join(sorted(jobs[group == at])) for at in range(group.max() + 1)]
    pair = np.array(members)[group]
    return left_out(rows, folds(pair, _FOLDS), lambda known: Interference().fit(known, known["speed"]))


def _holdout(
    name: str, rows: Rows, estimates: Estimates, keep: Bools, about: str, targets: tuple[Target, ...] = ()
) -> Holdout:
    kept = rows_where(rows, keep)
    return Holdout(
        name=name,
        predictor="interference",
        data=("gavel",),
        left_out=about,
        unit="of solo speed",
        measured=kept["speed"],
        estimates=estimates.rows(keep),
        labels=[f"{model} in {group}" for model, group in zip(kept["model"], kept["group"], strict=True)],
        group=[f"{gpu} {out}" for gpu, out in zip(kept["gpu"], kept["left_out"], strict=True)]
        if "left_out" in kept
        else [str(gpu) for gpu in kept["gpu"]],
        targets=targets,
        note="parameters and intervals never saw the rows left out; the choice of formula did",
    )


def in_use(data: Path, predictor: Interference) -> Iterator[Holdout]:
    """All pairs."""
    yield all_rows("interference-in-use", predictor, colocated_pairs(data), "speed", "of solo speed", ("gavel",), "gpu")


RECIPES = (
    Recipe(
        name="interference",
        what="the speed of each of several jobs on one GPU, as a fraction of its solo speed",
        data=("gavel",),
        fit=fit,
        holdouts=in_parts(pair_holdouts, model_holdouts, matrix_holdouts),
        in_use=in_use,
    ),
)
