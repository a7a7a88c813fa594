"""The shipped predictor of a job's time at other sizes than it has run at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Bools, Estimates, Floats, PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data import elasticflow, gavel, pollux, zeus
from gpuwise.predict.fitting.data.tables import read_available, stacked
from gpuwise.predict.fitting.recipe import Recipe, in_parts
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.scaling.backtests import largest
from gpuwise.predict.scaling.end_to_end import EndToEndTime
from gpuwise.predict.scaling.history import HistoryTime

Table = dict[str, NDArray[Any]]
COVERED = Target("coverage", 0.85, 0.88)
BATCH = (Target("mape", 0.10, 0.05), COVERED)
GPUS = (Target("mape", 0.12, 0.06), COVERED)
DOUBLINGS = (1, 2, 3, 4)


def gavel_times(data: Path) -> Table:
    """Gavel's jobs, each GPU type a cluster of its own."""
    rows = gavel.isolated(data)
    return _table("gavel", rows_where(rows, np.isfinite(rows["batch"])))


def zeus_times(data: Path) -> Table:
    """Zeus' epochs. How many samples an epoch has is not recorded, so "iterations" are in units of that number."""
    rows = zeus.epochs(data)
    ones = np.ones(len(rows["batch"]))
    sized = {**rows, "gpus": ones, "nodes": ones, "step_time_s": rows["epoch_time_s"] * rows["batch"]}
    return _table("zeus", sized, 1.0 / rows["batch"])


def pollux_times(data: Path) -> Table:
    """Pollux' jobs on one cluster of T4 nodes."""
    return _table("pollux", pollux.steps(data))


def elasticflow_times(data: Path) -> Table:
    """ElasticFlow's jobs, each GPU type a cluster of its own."""
    return _table("elasticflow", elasticflow.steps(data))


def _table(name: str, rows: Table, iterations: Floats | None = None) -> Table:
    done = np.ones(len(rows["batch"])) if iterations is None else iterations
    pairs = list(zip(rows["model"], rows["gpu"], strict=True))
    return {
        "data": np.full(len(pairs), name),
        "model": np.asarray(rows["model"]),
        "job": np.array([f"{name}/{model}/{gpu}" for model, gpu in pairs]),
        "cluster": np.array([f"{name}/{gpu}" for _, gpu in pairs]),
        **{column: np.asarray(rows[column], dtype=np.float64) for column in ("batch", "gpus", "nodes")},
        "iterations": done,
        "time_s": rows["step_time_s"] * done,
    }


def fit(data: Path) -> HistoryTime:
    """From gavel, zeus and elasticflow."""
    rows = stacked(read_available((gavel_times, zeus_times, elasticflow_times), data))
    return HistoryTime().fit(rows, rows["time_s"])


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of some jobs that are kept for the fit, and those to predict."""

    keep: Bools
    out: Bools


def split(rows: Table, axis: str, depth: int = 1, jobs: Bools | None = None) -> Split:
    """The largest sizes of each job left out (above half, a quarter... of the largest), for jobs that allow it."""
    keep, out = np.zeros(len(rows["job"]), dtype=np.bool_), np.zeros(len(rows["job"]), dtype=np.bool_)
    sizes = np.stack([rows["batch"], rows["gpus"], rows["nodes"]], axis=1)
    for job in np.unique(rows["job"] if jobs is None else rows["job"][jobs]):
        mine = np.flatnonzero(rows["job"] == job)
        large, small = largest(sizes[mine], axis, depth)
        if large.any() and len(np.unique(sizes[mine][small], axis=0)) >= 2:
            keep[mine[small]], out[mine[large]] = True, True
    return Split(keep, out)


def by_model(rows: Table, axis: str, depths: tuple[int, ...] = (1,)) -> tuple[Estimates, NDArray[np.int64]]:
    """One model at a time predicted at sizes it has not reached, other models known whole; and which rows those are."""
    whole = HistoryTime().fit(rows, rows["time_s"])
    parts: list[Estimates] = []
    asked: list[NDArray[np.int64]] = []
    for model in np.unique(rows["model"]):
        mine = rows["model"] == model
        others = whole.without(set(rows["job"][mine]))
        for depth in depths:
            cut = split(rows, axis, depth, mine)
            if cut.out.any():
                known = others.without((), calibrate=False)
                known.partial_fit(rows_where(rows, cut.keep), rows["time_s"][cut.keep])
                parts.append(known.estimate(rows_where(rows, cut.out)))
                asked.append(np.flatnonzero(cut.out))
    return Estimates.joined(parts), np.concatenate(asked)


def all_at_once(rows: Table, axis: str) -> tuple[Estimates, NDArray[np.int64]]:
    """All models predicted at once at sizes that none of them has reached."""
    cut = split(rows, axis)
    known = HistoryTime().fit(rows_where(rows, ~cut.out), rows["time_s"][~cut.out])
    return known.estimate(rows_where(rows, cut.out)), np.flatnonzero(cut.out)


def as_published(rows: Table, axis: str) -> tuple[Estimates, NDArray[np.int64]]:
    """The stepwise linear regression, one for each job, at the largest sizes."""
    cut = split(rows, axis)
    kept = rows_where(rows, cut.keep)
    model = EndToEndTime(by="job").fit(kept, kept["time_s"])
    return model.estimate(rows_where(rows, cut.out)), np.flatnonzero(cut.out)


def _holdout(
    name: str,
    tables: list[Table],
    axis: str,
    predict: Callable[[Table, str], tuple[Estimates, NDArray[np.int64]]],
    left_out: str,
    targets: tuple[Target, ...] = (),
    note: str = "",
) -> Holdout:
    made = [(table, *predict(table, axis)) for table in tables if split(table, axis).out.any()]
    if not made:
        raise PredictionError(f"{name}: no job was measured at enough sizes to leave out its largest {axis}")
    rows = stacked([{name: column[at] for name, column in table.items()} for table, _, at in made])
    labels = [
        f"{job} batch {batch:g}, {gpus:g} GPUs on {nodes:g} nodes"
        for job, batch, gpus, nodes in zip(rows["job"], rows["batch"], rows["gpus"], rows["nodes"], strict=True)
    ]
    names = tuple(str(table["data"][0]) for table, *_ in made)
    estimates = Estimates.joined([each for _, each, _ in made])
    return Holdout(
        name, "HistoryTime", names, left_out, "s", rows["time_s"], estimates, labels, list(rows["data"]), targets, note
    )


def batch_holdouts(data: Path) -> Iterator[Holdout]:
    """Batch sizes extrapolated, by history and as published."""
    tables = read_available((gavel_times, zeus_times, pollux_times), data)
    yield _holdout(
        "endtoend-batch", tables, "batch", by_model,
        "one model at a time: its batches above half of the largest", BATCH,
        "zeus' time is that of an epoch, the others' of a step",
    )  # fmt: skip
    yield from _none_larger(tables, "batch")


def gpus_holdouts(data: Path) -> Iterator[Holdout]:
    """Numbers of GPUs extrapolated, by history and as published."""
    tables = read_available((gavel_times, elasticflow_times, pollux_times), data)
    yield _holdout(
        "endtoend-gpus", tables, "gpus", partial(by_model, depths=DOUBLINGS),
        "one model at a time: the next doubling of its GPUs, from each size", GPUS,
        "other models of the cluster are known at all sizes",
    )  # fmt: skip
    yield _holdout(
        "endtoend-gpus-largest", tables, "gpus", by_model,
        "one model at a time: more than half of its largest number of GPUs", GPUS,
        "gavel's V100 jobs are faster on 8 GPUs than on 4; pollux' small models slow down at once beyond 32 GPUs",
    )  # fmt: skip
    yield from _none_larger(tables, "gpus")


def _none_larger(tables: list[Table], axis: str) -> Iterator[Holdout]:
    strict = f"all models at once: {axis} above half of the largest"
    yield _holdout(f"endtoend-{axis}-none-larger", tables, axis, all_at_once, strict)
    paper = _holdout(f"endtoend-{axis}-published", tables, axis, as_published, strict)
    yield replace(paper, predictor="EndToEndTime", note="stepwise linear regression, one for each job")


def batches_in_use(data: Path, predictor: HistoryTime) -> Iterator[Holdout]:
    """The largest batches of each job, with its smaller ones added to what the predictor knows."""
    yield _asked(read_available((gavel_times, zeus_times, pollux_times), data), "batch", predictor)


def gpus_in_use(data: Path, predictor: HistoryTime) -> Iterator[Holdout]:
    """The largest numbers of GPUs of each job, with its smaller ones added to what the predictor knows."""
    yield _asked(read_available((gavel_times, elasticflow_times, pollux_times), data), "gpus", predictor)


def _asked(tables: list[Table], axis: str, predictor: HistoryTime) -> Holdout:

    def predict(rows: Table, axis: str) -> tuple[Estimates, NDArray[np.int64]]:
        cut = split(rows, axis)
        known = predictor.without((), calibrate=False)
        known.partial_fit(rows_where(rows, cut.keep), rows["time_s"][cut.keep])
        return known.estimate(rows_where(rows, cut.out)), np.flatnonzero(cut.out)

    about = f"each job's {axis} above half of its largest; the predictor in use is fitted to the smaller ones too"
    whole = _holdout(f"endtoend-{axis}-in-use", tables, axis, predict, about)
    return replace(whole, note="flatters a predictor that was fitted to the same data")


RECIPES = (
    Recipe(
        "endtoend",
        "time of a known job at other batch sizes and numbers of GPUs",
        ("gavel", "zeus", "elasticflow"),
        fit,
        in_parts(batch_holdouts, gpus_holdouts),
        in_parts(batches_in_use, gpus_in_use),
    ),
)
