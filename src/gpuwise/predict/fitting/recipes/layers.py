"""Time of single layers: fitted to random layers on six GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data import justus
from gpuwise.predict.fitting.data.tables import on_known_gpus
from gpuwise.predict.fitting.recipe import Recipe, all_rows
from gpuwise.predict.fitting.scores import Holdout, Target
from gpuwise.predict.time.layers import LayerTime, PerLayerLinear, linear_columns

LEFT_OUT = 0.05
TARGETS = (Target("mape", 0.15, 0.08), Target("coverage", 0.85, 0.88))


def layers(data: Path) -> dict[str, Any]:
    """Every measured layer on a GPU of the catalogue."""
    return on_known_gpus(justus.layers(data))


def fit_layers(data: Path) -> LayerTime:
    """`LayerTime` of all measured layers."""
    table = layers(data)
    return LayerTime().fit(table, table["time_s"])


def fit_linear(data: Path) -> PerLayerLinear:
    """`PerLayerLinear` of all measured layers."""
    table = layers(data)
    return PerLayerLinear().fit(linear_columns(table), table["time_s"])


def layer_holdouts(data: Path) -> Iterator[Holdout]:
    """One in twenty of the layers left out at random."""
    seen, new = _split(data)
    model = LayerTime().fit(seen, seen["time_s"])
    yield Holdout(
        name="layers-random",
        predictor="LayerTime",
        data=(justus.FOLDER,),
        left_out="one in twenty of the layers, at random",
        unit="s",
        measured=new["time_s"],
        estimates=model.estimate(new),
        labels=_labels(new),
        group=[f"{kind} {gpu}" for kind, gpu in zip(new["kind"], new["gpu"], strict=True)],
        targets=TARGETS,
    )


def linear_holdouts(data: Path) -> Iterator[Holdout]:
    """The same layers by the linear model of the literature, for comparison."""
    seen, new = _split(data)
    model = PerLayerLinear().fit(linear_columns(seen), seen["time_s"])
    yield Holdout(
        name="layers-random-linear",
        predictor="PerLayerLinear",
        data=(justus.FOLDER,),
        left_out="one in twenty of the layers, at random",
        unit="s",
        measured=new["time_s"],
        estimates=model.estimate(linear_columns(new)),
        labels=_labels(new),
        group=[f"{kind} {gpu}" for kind, gpu in zip(new["kind"], new["gpu"], strict=True)],
        note="the paper's model, kept for comparison; LayerTime is what gpuwise uses",
    )


def layers_in_use(data: Path, predictor: LayerTime) -> Iterator[Holdout]:
    """All measured layers."""
    yield all_rows("layers-in-use", predictor, layers(data), "time_s", "s", (justus.FOLDER,), "gpu")


def linear_in_use(data: Path, predictor: PerLayerLinear) -> Iterator[Holdout]:
    """All measured layers."""
    table = layers(data)
    rows = {**linear_columns(table), "time_s": table["time_s"]}
    yield all_rows("layers-in-use-linear", predictor, rows, "time_s", "s", (justus.FOLDER,), "gpu")


def _split(data: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    table = layers(data)
    out = np.random.default_rng(1).random(len(table["time_s"])) < LEFT_OUT
    return rows_where(table, ~out), rows_where(table, out)


def _labels(table: dict[str, Any]) -> list[str]:
    names = ("gpu", "kind", "batch", "input_size", "kernel", "stride", "channels_in", "channels_out", "optimizer")
    return [" ".join(map(str, row)) for row in zip(*(table[name] for name in names), strict=True)]


RECIPES = (
    Recipe(
        "layer_time",
        "seconds of a convolution or dense layer",
        (justus.FOLDER,),
        fit_layers,
        layer_holdouts,
        layers_in_use,
    ),
    Recipe(
        "layer_time_linear",
        "seconds of a layer by its complexity, as in the literature",
        (justus.FOLDER,),
        fit_linear,
        linear_holdouts,
        linear_in_use,
    ),
)
