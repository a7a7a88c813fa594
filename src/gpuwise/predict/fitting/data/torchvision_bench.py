"""Step times of torchvision networks on several GPUs (pytorch-gpu-benchmark)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import read_table

FOLDER = "pytorch_gpu_benchmark"
PREFIX = "step_time_ms_bs"
"""Followed by the batch size."""
BATCH = 12
IMAGE = 224


def steps(data: Path, mode: str = "train", precision: str = "fp32", gpus: int = 1) -> dict[str, Any]:
    """Columns: ``model``, ``family``, ``gpu``, ``host`` (the machine it was measured on), ``precision``, ``batch``,
    ``image`` (height and width), ``step_time_s`` (median).

    A training step is the copy of the batch to the GPU, the forward and the backward pass; weights are not updated.
    """
    import polars as pl

    found = sorted((data / FOLDER).glob(f"{PREFIX}*.csv"))
    files = [file for file in found if file.stem.removeprefix(PREFIX).isdigit()]
    if not files:
        raise PredictionError(f"no step times in {data / FOLDER}: a file {PREFIX}{BATCH}.csv is expected")
    named = {"float": "fp32", "half": "fp16", "double": "fp64"}
    table = pl.concat([_read(file) for file in files]).filter(
        (pl.col("mode") == mode) & (pl.col("dtype").replace(named) == precision) & (pl.col("num_gpus") == gpus)
    )
    if not len(table):
        raise PredictionError(f"{data / FOLDER} has no steps of mode {mode} in {precision} on {gpus} GPUs")
    models = table["model"].to_list()
    return {
        "model": table["model"].to_numpy(),
        "family": [family(model) for model in models],
        "gpu": table["gpu"].to_numpy(),
        "precision": [precision] * len(models),
        "batch": table["batch"].to_list(),
        "image": [IMAGE] * len(models),
        "host": table["source_dir"].to_numpy(),
        "step_time_s": table["median_ms"].to_numpy() / 1e3,
    }


def _read(file: Path) -> Any:
    import polars as pl

    table = read_table(file, ("num_gpus", "median_ms"), names=("gpu", "source_dir", "mode", "dtype", "model"))
    return table.with_columns(batch=pl.lit(int(file.stem.removeprefix(PREFIX))))


def family(model: str) -> str:
    """The name without its size: ``wide_resnet50_2`` is a resnet."""
    found = re.search(r"[a-z]{3,}", model.removeprefix("wide_"))
    return found.group(0) if found else model
