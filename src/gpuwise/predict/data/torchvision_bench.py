"""Step times of torchvision networks at batch 12 on several GPUs (pytorch-gpu-benchmark)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpuwise.predict.base import PredictionError

FOLDER = "pytorch_gpu_benchmark"
BATCH = 12
IMAGE = 224


def steps(data: Path, mode: str = "train", precision: str = "fp32", gpus: int = 1) -> dict[str, Any]:
    """Columns: ``model``, ``family``, ``gpu``, ``host`` (the machine it was measured on), ``precision``, ``batch``,
    ``image`` (height and width), ``step_time_s`` (median).

    A training step is the copy of the batch to the GPU, the forward and the backward pass; weights are not updated.
    """
    import polars as pl

    files = sorted((data / FOLDER).glob("step_time_ms_bs*.csv"))
    if not files:
        raise PredictionError(f"no step times in {data / FOLDER}: a file step_time_ms_bs12.csv is expected")
    named = {"float": "fp32", "half": "fp16", "double": "fp64"}
    table = pl.concat([pl.read_csv(file) for file in files], how="vertical_relaxed").filter(
        (pl.col("mode") == mode)
        & (pl.col("dtype").replace(named) == precision)
        & (pl.col("num_gpus") == gpus)
        & (pl.col("median_ms") > 0)
    )
    models = table["model"].to_list()
    return {
        "model": table["model"].to_numpy(),
        "family": [family(model) for model in models],
        "gpu": table["gpu"].to_numpy(),
        "precision": [precision] * len(models),
        "batch": [BATCH] * len(models),
        "image": [IMAGE] * len(models),
        "host": table["source_dir"].to_numpy(),
        "step_time_s": table["median_ms"].to_numpy() / 1e3,
    }


def family(model: str) -> str:
    """The name without what says how large it is: ``wide_resnet50_2`` is a resnet."""
    found = re.search(r"[a-z]{3,}", model.removeprefix("wide_"))
    return found.group(0) if found else model
