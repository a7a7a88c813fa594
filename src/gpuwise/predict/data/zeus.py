"""Zeus' measurements: time of an epoch by batch size and power limit, and epochs until a metric was reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PREFIX = "summary_power_"


def epochs(data: Path, unthrottled: bool = True) -> dict[str, NDArray[Any]]:
    """Time of an epoch. ``unthrottled`` keeps only the largest power limit of each batch size.

    Columns: ``model`` (data set, network, optimizer), ``gpu``, ``batch``, ``power_limit_w``, ``epoch_time_s``.
    """
    import polars as pl

    frames = []
    for path in sorted((data / "zeus").glob(f"{PREFIX}*.csv")):
        frame = pl.read_csv(path).with_columns(gpu=pl.lit(path.stem.removeprefix(PREFIX)))
        frames.append(frame.with_columns(model=pl.concat_str("dataset", "network", "optimizer", separator="/")))
    table = pl.concat(frames).sort("model", "gpu", "batch_size", "power_limit")
    if unthrottled:
        most = pl.col("power_limit").max().over("model", "gpu", "batch_size")
        table = table.filter(pl.col("power_limit") == most)
    return {
        "model": table["model"].to_numpy(),
        "gpu": table["gpu"].to_numpy(),
        "batch": table["batch_size"].to_numpy().astype(np.float64),
        "power_limit_w": table["power_limit"].to_numpy().astype(np.float64),
        "epoch_time_s": table["time_per_epoch"].to_numpy().astype(np.float64),
    }


def curves(data: Path) -> dict[str, NDArray[Any]]:
    """One row for each training run: when it first reached each of the listed values of its metric.

    Columns: ``workload`` (data set and network), ``run``, ``batch``, ``steps`` (an array for each run: epochs) and
    ``values`` (an array: the metric). Values that the run never reached are left out.
    """
    import polars as pl

    keys = ["dataset", "network", "batch_size", "optimizer", "learning_rate", "run"]
    table = pl.read_csv(data / "zeus" / "summary_train.csv", schema_overrides={"target_epoch": pl.Float64})
    table = table.filter(pl.col("target_epoch").is_finite())
    runs = table.group_by(keys, maintain_order=True).agg("target_epoch", "target_metric").rows(named=True)
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
