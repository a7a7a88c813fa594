"""Training steps of timm's image models in mixed precision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import read_table

FOLDER = "timm"
NUMBERS = ("train_step_time", "train_batch_size", "train_img_size")
_FILE = re.compile(r"benchmark-train-amp-(?P<layout>nchw|nhwc)-.*-(?P<gpu>[a-z0-9]+)$")
_PUBLISHERS = ("tf_", "gluon_", "ig_", "ssl_", "swsl_", "legacy_", "tv_", "ens_", "adv_", "jx_", "dm_")
"""Prefixes of names that give the publisher of the weights, not the network."""


def steps(data: Path) -> dict[str, Any]:
    """Forward, backward and update of each network, as large a batch as fits.

    Columns: ``model``, ``family``, ``gpu``, ``host``, ``layout`` (nchw, nhwc), ``precision``, ``batch``, ``image`` and
    ``step_time_s``.
    """
    import polars as pl

    found = [(file, _FILE.match(file.stem)) for file in sorted((data / FOLDER).glob("benchmark-train-*.csv"))]
    tables = [
        read_table(file, NUMBERS, names=("model",)).with_columns(
            layout=pl.lit(named["layout"]), gpu=pl.lit(named["gpu"])
        )
        for file, named in found
        if named
    ]
    if not sum(map(len, tables)):
        raise PredictionError(f"no training steps in {data / FOLDER}: benchmark-train-amp-*.csv are expected")
    table = pl.concat(tables)
    models = table["model"].to_list()
    return {
        "model": table["model"].to_numpy(),
        "family": [family(model) for model in models],
        "gpu": table["gpu"].to_numpy(),
        "host": table["gpu"].to_numpy(),
        "layout": table["layout"].to_numpy(),
        "precision": ["fp16"] * len(models),
        "batch": table["train_batch_size"].cast(pl.Int64).to_list(),
        "image": table["train_img_size"].cast(pl.Int64).to_list(),
        "step_time_s": table["train_step_time"].to_numpy() / 1e3,
    }


def family(model: str) -> str:
    """The letters that a name begins with, publishers aside: ``tf_efficientnet_b0_ns`` is an efficientnet."""
    while publisher := next((each for each in _PUBLISHERS if model.startswith(each)), None):
        model = model.removeprefix(publisher)
    found = re.match(r"[a-z]+", model)
    return found.group(0) if found else model
