"""Zeus' measurements: time of an epoch by batch size and power limit, and epochs until a metric was reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import read_table

PREFIX = "summary_power_"
JOB = ("dataset", "network", "optimizer")


def epochs(data: Path, unthrottled: bool = True) -> dict[str, NDArray[Any]]:
    """Time of an epoch. ``unthrottled`` keeps only the largest power limit of each batch size.

    Columns: ``model`` (data set, network, optimizer), ``gpu``, ``batch``, ``power_limit_w``, ``epoch_time_s``.
    """
    import polars as pl

    frames = []
    for path in sorted((data / "zeus").glob(f"{PREFIX}*.csv")):
        frame = read_table(path, ("batch_size", "power_limit", "time_per_epoch"), names=JOB)
        frame = frame.with_columns(gpu=pl.lit(path.stem.removeprefix(PREFIX)))
        frames.append(frame.with_columns(model=pl.concat_str(*JOB, separator="/")))
    if not sum(map(len, frames)):
        raise PredictionError(f"no epochs in {data / 'zeus'}: files {PREFIX}GPU.csv are expected")
    table = pl.concat(frames).sort("model", "gpu", "batch_size", "power_limit")
    if unthrottled:
        most = pl.col("power_limit").max().over("model", "gpu", "batch_size")
        table = table.filter(pl.col("power_limit") == most)
    return {
        "model": table["model"].to_numpy(),
        "gpu": table["gpu"].to_numpy(),
        "batch": table["batch_size"].to_numpy(),
        "power_limit_w": table["power_limit"].to_numpy(),
        "epoch_time_s": table["time_per_epoch"].to_numpy(),
    }


def curves(data: Path) -> dict[str, NDArray[Any]]:
    """One row for each training run: when it first reached each of the listed values of its metric.

    Columns: ``workload`` (data set and network), ``run``, ``batch``, ``steps`` (an array for each run: epochs) and
    ``values`` (an array: the metric). Values that the run never reached are left out.
    """
    import polars as pl

    keys = ["dataset", "network", "batch_size", "optimizer", "learning_rate", "run"]
    path = data / "zeus" / "summary_train.csv"
    table = read_table(path, ("batch_size",), ("learning_rate", "target_metric", "target_epoch"), (*JOB, "run"))
    table = table.with_columns(pl.col("batch_size").cast(pl.Int64)).filter(pl.col("target_epoch").is_finite())
    runs = table.group_by(keys, maintain_order=True).agg("target_epoch", "target_metric").rows(named=True)
    if not runs:
        raise PredictionError(f"no run in {path} reached a target")
    return {
        "workload": np.asarray([f"{run['dataset']}/{run['network']}" for run in runs]),
        "run": np.asarray(["/".join(str(run[key]) for key in keys) for run in runs]),
        "batch": np.asarray([float(run["batch_size"]) for run in runs]),
        "steps": _arrays([run["target_epoch"] for run in runs]),
        "values": _arrays([run["target_metric"] for run in runs]),
    }


def _arrays(lists: list[list[float]]) -> NDArray[Any]:
    made = np.empty(len(lists), dtype=object)
    for number, each in enumerate(lists):
        made[number] = np.asarray(each, dtype=np.float64)
    return made
