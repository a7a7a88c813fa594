"""Step time of whole networks: fitted to torchvision's and timm's networks, and checked on what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.predict.base import Estimates, Floats, PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data import gavel, timm_bench, torchvision_bench, zeus
from gpuwise.predict.fitting.data.tables import log_left_out, on_known_gpus, read_available, stacked
from gpuwise.predict.fitting.graphs.summaries import with_work
from gpuwise.predict.fitting.recipe import Recipe, all_rows, each_of, in_parts, left_out
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.intervals.conformal import folds
from gpuwise.predict.time.gpu_rates import canonical
from gpuwise.predict.time.roofline import RooflineTime
from gpuwise.predict.time.step_time import StepTime
from gpuwise.predict.time.transfer import GpuTransfer, known_elsewhere

COVERS = Target("coverage", 0.85, 0.88)
FOLDS = 8


def torchvision_steps(data: Path) -> dict[str, Any]:
    """Torchvision's networks with their work; their steps do not update the weights."""
    table, _ = with_work(on_known_gpus(torchvision_bench.steps(data)), "torchvision")
    for name in [name for name in table if name.startswith("update_")]:
        table[name] = np.zeros_like(table[name])
    table["layout"] = np.asarray(["nchw"] * len(table["model"]))
    return table


def timm_steps(data: Path) -> dict[str, Any]:
    """Timm's networks with their work; the few that timm no longer has are left out."""
    return with_work(on_known_gpus(timm_bench.steps(data)), "timm")[0]


def all_steps(data: Path) -> dict[str, Any]:
    """Both, as one table."""
    tables = read_available((torchvision_steps, timm_steps), data)
    names = sorted({name for table in tables for name in table})
    return {name: np.concatenate([_column(table, name) for table in tables]) for name in names}


def _column(table: dict[str, Any], name: str) -> Any:
    return np.asarray(table[name]) if name in table else np.zeros(len(table["model"]))


def fit_steptime(data: Path) -> StepTime:
    """`StepTime` of all measured steps and jobs; intervals are those for families and GPUs that are new."""
    table = all_steps(data)
    model = StepTime().fit(table, table["step_time_s"])
    try:
        model.transfer_ = fit_transfer(data)
    except PredictionError as error:
        log_left_out(f"times of jobs on several GPUs: {error}")
    return model


def crossed(model: RooflineTime, table: dict[str, Any], groups: Any, count: int) -> Estimates:
    """Estimates for each row by a model that was fitted and calibrated without the row's group."""

    def fitted(seen: dict[str, Any]) -> RooflineTime:
        return RooflineTime(**model.get_params()).fit(seen, seen["step_time_s"])

    return left_out(table, folds(groups, count), fitted)


def torchvision_holdouts(data: Path) -> Iterator[Holdout]:
    """Networks, families and GPUs left out."""
    table = torchvision_steps(data)
    single = dict(table) | {"family": table["model"]}
    yield _holdout("step-network-unseen", "one network at a time", (torchvision_bench.FOLDER,), table,
                   crossed(RooflineTime(inner=13), single, table["model"], 100), "family", (0.15, 0.09))  # fmt: skip
    yield _holdout("step-family-unseen-fp32", "one family at a time", (torchvision_bench.FOLDER,), table,
                   crossed(RooflineTime(), table, table["family"], 100), "family")  # fmt: skip
    yield _holdout("step-gpu-unseen-graph", "one GPU at a time", (torchvision_bench.FOLDER,), table,
                   crossed(RooflineTime(), single, canonical(table["gpu"]), 100), "gpu")  # fmt: skip


def timm_holdouts(data: Path) -> Iterator[Holdout]:
    """Families left out."""
    table = timm_steps(data)
    yield _holdout("step-family-unseen", f"model families, in {FOLDS} parts", (timm_bench.FOLDER,), table,
                   crossed(RooflineTime(), table, table["family"], FOLDS), "layout", (0.20, 0.10))  # fmt: skip


def _holdout(
    name: str, about: str, data: tuple[str, ...], table: dict[str, Any], made: Estimates, group: str,
    mape: tuple[float, float] | None = None,
) -> Holdout:  # fmt: skip
    labels = [
        f"{model} {gpu} {host}" for model, gpu, host in zip(table["model"], table["gpu"], table["host"], strict=True)
    ]
    targets = (Target("mape", *mape), COVERS) if mape else ()
    return Holdout(name, "RooflineTime", data, about, "s", table["step_time_s"], made, labels,
                   list(table[group]), targets)  # fmt: skip


# -- GPUs that were left out ------------------------------------------------------------------------------------------


def jobs_on_gpus(data: Path) -> dict[str, Any]:
    """Jobs that were measured on more than one GPU: ``job``, ``gpu``, ``source``, ``time_s``, one GPU each.

    Gavel's jobs are those of its physical cluster, which were measured again: the older file has jobs that waited for
    their input. Zeus' times are those of an epoch, at the largest power limit.
    """
    table = on_known_gpus(stacked(read_available((_bench_jobs, _zeus_jobs, _gavel_jobs), data)))
    table["gpu"] = np.asarray(canonical(table["gpu"]))
    measured = known_elsewhere(table["job"].tolist(), table["gpu"].tolist(), table["time_s"])
    shared = np.asarray([bool(known) for known in measured], dtype=np.bool_)
    if not shared.any():
        raise PredictionError(f"no job in {data} was measured on more than one GPU")
    return rows_where(table, shared)


def _bench_jobs(data: Path) -> dict[str, Any]:
    return _jobs(torchvision_bench.FOLDER, torchvision_bench.steps(data), "step_time_s")


def _zeus_jobs(data: Path) -> dict[str, Any]:
    return _jobs("zeus", zeus.epochs(data), "epoch_time_s")


def _gavel_jobs(data: Path) -> dict[str, Any]:
    alone = gavel.isolated(data, "physical_cluster_throughputs.json")
    return _jobs("gavel", rows_where(alone, (alone["gpus"] == 1) & (alone["nodes"] == 1)), "step_time_s")


def _jobs(source: str, table: dict[str, Any], time: str) -> dict[str, Any]:
    names = [f"{source}/{model}/{batch:g}" for model, batch in zip(table["model"], table["batch"], strict=True)]
    return {
        "source": np.full(len(names), source),
        "job": np.asarray(names),
        "gpu": np.asarray(table["gpu"]),
        "time_s": np.asarray(table[time]),
    }


def fit_transfer(data: Path) -> GpuTransfer:
    """`GpuTransfer` of all jobs that were measured on several GPUs."""
    table = jobs_on_gpus(data)
    return GpuTransfer().fit(_with_known(table), table["time_s"])


def _with_known(table: dict[str, Any]) -> dict[str, Any]:
    known = known_elsewhere(list(table["job"]), list(table["gpu"]), table["time_s"])
    return {"gpu": table["gpu"], "measured": known}


def transfer_holdouts(data: Path) -> Iterator[Holdout]:
    """Each GPU left out of all data sets in turn."""
    table = jobs_on_gpus(data)

    def fitted(seen: dict[str, Any]) -> GpuTransfer:
        known = _with_known(seen)
        able = np.asarray([bool(each) for each in known["measured"]], dtype=np.bool_)
        return GpuTransfer().fit(rows_where(known, able), _floats(seen["time_s"])[able])

    yield Holdout(
        name="step-gpu-unseen",
        predictor="GpuTransfer",
        data=tuple(dict.fromkeys(table["source"].tolist())),
        left_out="one GPU at a time, from all data sets",
        unit="s",
        measured=_floats(table["time_s"]),
        estimates=left_out({**table, **_with_known(table)}, each_of(table["gpu"]), fitted),
        labels=[f"{job} {gpu}" for job, gpu in zip(table["job"], table["gpu"], strict=True)],
        group=list(table["source"]),
        targets=(Target("mape", 0.25, 0.12), COVERS),
    )


def _floats(column: Any) -> Floats:
    return np.asarray(column, dtype=np.float64)


def steps_in_use(data: Path, predictor: StepTime) -> Iterator[Holdout]:
    """All measured steps, from their graphs."""
    table = all_steps(data)
    table["data"] = np.where(table["precision"] == "fp32", torchvision_bench.FOLDER, timm_bench.FOLDER)
    names = tuple(sorted(set(table["data"].tolist())))
    yield all_rows("step-in-use", predictor, table, "step_time_s", "s", names, "gpu")


def gpus_in_use(data: Path, predictor: StepTime) -> Iterator[Holdout]:
    """All jobs that were measured on several GPUs, each from its times on the others."""
    if predictor.transfer_ is not None:
        jobs = jobs_on_gpus(data)
        names = tuple(dict.fromkeys(jobs["source"].tolist()))
        rows = {**jobs, **_with_known(jobs)}
        yield all_rows("step-gpu-in-use", predictor.transfer_, rows, "time_s", "s", names, "source")


holdouts = in_parts(torchvision_holdouts, timm_holdouts, transfer_holdouts)
RECIPES = (
    Recipe(
        "step_time",
        "seconds of a training step of any network on any GPU",
        (torchvision_bench.FOLDER, timm_bench.FOLDER, "zeus", "gavel"),
        fit_steptime,
        holdouts,
        in_parts(steps_in_use, gpus_in_use),
    ),
)
