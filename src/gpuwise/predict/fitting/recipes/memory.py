"""The shipped predictor of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.fitting.data.peak_memory import miso_memory, salus_memory, schedtune_memory
from gpuwise.predict.fitting.data.tables import read_available, stacked
from gpuwise.predict.fitting.recipe import Recipe, all_rows, each_of, left_out
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.memory.need import MemoryNeed

Table = dict[str, NDArray[Any]]
READERS = (schedtune_memory, salus_memory, miso_memory)
TARGETS = (Target("mape", 0.15, 0.07), Target("under_5pct", 0.05, 0.01), Target("coverage", 0.85, 0.88))


def memory_table(data: Path) -> Table:
    """All rows of measured memory."""
    return stacked(read_available(READERS, data))


def fit(data: Path) -> MemoryNeed:
    """From SchedTune (PyTorch), Salus and MISO (TensorFlow)."""
    rows = memory_table(data)
    return MemoryNeed().fit(rows, rows["peak_bytes"])


def holdouts(data: Path) -> Iterator[Holdout]:
    """One model left out at a time, in whatever data set it occurs; then one family."""
    rows = memory_table(data)
    models = np.array([str(each) for each in rows["architecture"]])
    made = _holdout("memory-model-unseen", rows, models, "one model at a time")
    yield made
    for name in sorted(set(rows["data"])):
        yield replace(made.rows(rows["data"] == name), name=f"memory-model-unseen-{name}", data=(name,))
    families = np.array([family(each) for each in models])
    related = rows | {"architecture": families}  # families are left out when intervals are calibrated, too
    yield _holdout("memory-family-unseen", related, families, "one model family at a time", ())


def family(model: str) -> str:
    """A model's name without its size: ``resnet50`` and ``resnet18`` are one family."""
    return model.split("_")[0].rstrip("0123456789") or model


def _holdout(
    name: str, rows: Table, groups: NDArray[Any], about: str, targets: tuple[Target, ...] = TARGETS
) -> Holdout:
    def fitted(seen: Table) -> MemoryNeed:
        return MemoryNeed().fit(seen, seen["peak_bytes"])

    labels = [
        f"{label} batch {batch:g} on {gpu}"
        for label, batch, gpu in zip(rows["label"], rows["batch_size"], rows["gpu"], strict=True)
    ]
    return Holdout(
        name=name,
        predictor="memory",
        data=tuple(sorted(set(rows["data"]))),
        left_out=about,
        unit="bytes",
        measured=rows["peak_bytes"],
        estimates=left_out(rows, each_of(groups), fitted),
        labels=labels,
        group=[str(each) for each in rows["data"]],
        targets=targets,
        note="the value is the highest quantile that is off by at most 13 % on average in the fit",
    )


def in_use(data: Path, predictor: MemoryNeed) -> Iterator[Holdout]:
    """All rows of measured memory."""
    rows = memory_table(data)
    names = tuple(sorted(set(rows["data"].tolist())))
    yield all_rows("memory-in-use", predictor, rows, "peak_bytes", "bytes", names, "data")


RECIPES = (
    Recipe(
        name="memory",
        what="the most memory that a training job takes of a GPU",
        data=("schedtune", "salus", "miso"),
        fit=fit,
        holdouts=holdouts,
        in_use=in_use,
    ),
)
