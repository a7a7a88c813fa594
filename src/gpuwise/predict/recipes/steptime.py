"""Step time of whole networks: fitted to torchvision's and timm's networks, and checked on what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.predict.base import Estimates, Floats, rows_where
from gpuwise.predict.conformal import folds
from gpuwise.predict.data import gavel, timm_bench, torchvision_bench, zeus
from gpuwise.predict.gpu_rates import canonical
from gpuwise.predict.graphs import with_work
from gpuwise.predict.recipe import Recipe, each_of, left_out
from gpuwise.predict.roofline import RooflineTime
from gpuwise.predict.scores import Holdout, Target
from gpuwise.predict.steptime import StepTime
from gpuwise.predict.transfer import GpuTransfer, known_elsewhere

COVERS = Target("coverage", 0.85, 0.88)
FOLDS = 8


def torchvision_steps(data: Path) -> dict[str, Any]:
    """Torchvision's networks with their work; their steps do not update the weights."""
    table, _ = with_work(torchvision_bench.steps(data), "torchvision")
    for name in [name for name in table if name.startswith("update_")]:
        table[name] = np.zeros_like(table[name])
    table["layout"] = np.asarray(["nchw"] * len(table["model"]))
    return table


def timm_steps(data: Path) -> dict[str, Any]:
    """Timm's networks with their work; the few that timm no longer has are left out."""
    return with_work(timm_bench.steps(data), "timm")[0]


def all_steps(data: Path) -> dict[str, Any]:
    """Both, as one table."""
    tables = torchvision_steps(data), timm_steps(data)
    names = sorted({name for table in tables for name in table})
    return {name: np.concatenate([_column(table, name) for table in tables]) for name in names}


def _column(table: dict[str, Any], name: str) -> Any:
    return np.asarray(table[name]) if name in table else np.zeros(len(table["model"]))


def fit_steptime(data: Path) -> StepTime:
    """`StepTime` of all measured steps and jobs; intervals are those for families and GPUs that are new."""
    table = all_steps(data)
    model = StepTime().fit(table, table["step_time_s"])
    model.transfer_ = fit_transfer(data)
    return model


def crossed(model: RooflineTime, table: dict[str, Any], groups: Any, count: int) -> Estimates:
    """Estimates for each row by a model that was fitted and calibrated without the row's group."""

    def fitted(seen: dict[str, Any]) -> RooflineTime:
        return RooflineTime(**model.get_params()).fit(seen, seen["step_time_s"])

    return left_out(table, folds(groups, count), fitted)


def roofline_holdouts(data: Path) -> Iterator[Holdout]:
    """Networks and families left out."""
    table = torchvision_steps(data)
    single = dict(table) | {"family": table["model"]}
    yield _holdout("step-network-unseen", "one network at a time", (torchvision_bench.FOLDER,), table,
                   crossed(RooflineTime(inner=13), single, table["model"], 100), "family", (0.15, 0.09))  # fmt: skip
    yield _holdout("step-family-unseen-fp32", "one family at a time", (torchvision_bench.FOLDER,), table,
                   crossed(RooflineTime(), table, table["family"], 100), "family")  # fmt: skip
    yield _holdout("step-gpu-unseen-graph", "one GPU at a time", (torchvision_bench.FOLDER,), table,
                   crossed(RooflineTime(), single, canonical(table["gpu"]), 100), "gpu")  # fmt: skip
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
    bench = torchvision_bench.steps(data)
    epochs = zeus.epochs(data)
    alone = gavel.isolated(data, "physical_cluster_throughputs.json")
    alone = rows_where(alone, (alone["gpus"] == 1) & (alone["nodes"] == 1))
    parts = [
        (torchvision_bench.FOLDER, bench["model"], bench["gpu"], bench["step_time_s"]),
        ("zeus", _jobs(epochs), epochs["gpu"], epochs["epoch_time_s"]),
        ("gavel", _jobs(alone), alone["gpu"], alone["step_time_s"]),
    ]
    table = {
        "source": np.concatenate([[name] * len(jobs) for name, jobs, _, _ in parts]),
        "job": np.concatenate([[f"{name}/{job}" for job in jobs] for name, jobs, _, _ in parts]),
        "gpu": np.asarray(canonical(np.concatenate([gpus for *_, gpus, _ in parts]).tolist())),
        "time_s": np.concatenate([times for *_, times in parts]),
    }
    measured = known_elsewhere(table["job"].tolist(), table["gpu"].tolist(), table["time_s"])
    shared = np.asarray([bool(known) for known in measured], dtype=np.bool_)
    return rows_where(table, shared)


def _jobs(table: dict[str, Any]) -> list[str]:
    return [f"{model}/{batch:g}" for model, batch in zip(table["model"], table["batch"], strict=True)]


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
        data=(torchvision_bench.FOLDER, "zeus", "gavel"),
        left_out="one GPU at a time, from all three data sets",
        unit="s",
        measured=_floats(table["time_s"]),
        estimates=left_out({**table, **_with_known(table)}, each_of(table["gpu"]), fitted),
        labels=[f"{job} {gpu}" for job, gpu in zip(table["job"], table["gpu"], strict=True)],
        group=list(table["source"]),
        targets=(Target("mape", 0.25, 0.12), COVERS),
    )


def _floats(column: Any) -> Floats:
    return np.asarray(column, dtype=np.float64)


def holdouts(data: Path) -> Iterator[Holdout]:
    """Networks, families and GPUs left out."""
    yield from roofline_holdouts(data)
    yield from transfer_holdouts(data)


RECIPES = (
    Recipe(
        "step_time",
        "seconds of a training step of any network on any GPU",
        (torchvision_bench.FOLDER, timm_bench.FOLDER, "zeus", "gavel"),
        fit_steptime,
        holdouts,
    ),
)
