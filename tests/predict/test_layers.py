"""Time of single layers: the linear model of the literature and the boosted roofline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.predict.base import PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data import justus
from gpuwise.predict.fitting.scores import score
from gpuwise.predict.time.layers import LayerTime, PerLayerLinear, layer_features, linear_columns, output_size
from gpuwise.predict.trees import Forest


def made_layers(rows: int = 600, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["conv", "dense"], rows)
    dense = kind == "dense"
    table = {
        "gpu": rng.choice(["V100", "K80"], rows),
        "kind": kind,
        "batch": rng.integers(1, 65, rows),
        "input_size": np.where(dense, 1, rng.integers(7, 200, rows)),
        "kernel": np.where(dense, 1, rng.integers(1, 8, rows)),
        "stride": np.where(dense, 1, rng.integers(1, 4, rows)),
        "same_padding": np.where(dense, 0, rng.integers(0, 2, rows)),
        "channels_in": rng.integers(1, 512, rows),
        "channels_out": rng.integers(1, 512, rows),
        "bias": rng.integers(0, 2, rows),
        "optimizer": rng.choice(["none", "sgd", "adam"], rows),
        "activation": rng.choice(["none", "relu"], rows),
    }
    _, roof = layer_features(table)
    return table | {"time_s": 1.7 * roof * np.exp(rng.normal(0.0, 0.02, rows))}


def test_layer_time_keeps_the_contract() -> None:
    table = made_layers()
    given = {name: column for name, column in table.items() if name != "time_s"}
    check_predictor(LayerTime(trees=10, leaves=7), given, table["time_s"])


def test_the_linear_model_keeps_the_contract() -> None:
    table = made_layers()
    check_predictor(PerLayerLinear(), linear_columns(table), table["time_s"])


def test_the_linear_model_finds_both_coefficients() -> None:
    complexity = np.linspace(1e6, 1e9, 50)
    rows = {"gpu": ["V100"] * 50, "kind": ["conv"] * 50, "direction": ["forward"] * 50, "complexity": complexity}
    model = PerLayerLinear().fit(rows, 2e-4 + 3e-12 * complexity)
    assert model.coefficients_["conv/forward/V100"] == pytest.approx([2e-4, 3e-12], rel=1e-6)


def test_the_linear_model_refuses_a_gpu_that_was_not_measured() -> None:
    table = made_layers()
    model = PerLayerLinear().fit(linear_columns(table), table["time_s"])
    asked = linear_columns(rows_where(table, np.arange(1))) | {"gpu": ["A100"]}
    with pytest.raises(PredictionError, match="A100"):
        model.predict(asked)


def test_the_complexity_of_a_layer_is_that_of_the_paper() -> None:
    # 2 images, 5 × 5 with a 3 × 3 window and no padding: 3 × 3 positions; forward 3·3·4·8 = 288, backward (2·36 + 1)·8.
    layer = {
        "gpu": ["V100", "V100"], "kind": ["conv", "conv"], "batch": [2, 2], "input_size": [5, 5], "kernel": [3, 3],
        "stride": [1, 1], "same_padding": [0, 0], "channels_in": [4, 4], "channels_out": [8, 8],
        "optimizer": ["none", "sgd"],
    }  # fmt: skip
    assert linear_columns(layer)["complexity"].tolist() == [2 * 9 * 288, 2 * 9 * (288 + 584)]


def test_output_sizes_follow_tensorflow() -> None:
    size, kernel, stride = np.array([7.0, 7.0, 2.0]), np.array([3.0, 3.0, 5.0]), np.array([2.0, 2.0, 1.0])
    assert output_size(size, kernel, stride, np.array([True, False, False])).tolist() == [4.0, 3.0, 1.0]


def test_padding_that_cannot_be_split_evenly_is_a_feature() -> None:
    table = rows_where(made_layers(), np.arange(2)) | {"kind": ["conv"] * 2, "input_size": [32, 32], "stride": [1, 1]}
    table |= {"same_padding": [1, 1], "kernel": [3, 4]}  # 2 in all, or 3
    features, _ = layer_features(table)
    assert [2.0, 3.0] in features.T[:, :2].tolist()
    assert [0.0, 1.0] in features.T[:, :2].tolist()


def test_layers_of_an_unknown_kind_are_refused() -> None:
    table = made_layers()
    model = LayerTime(trees=2, leaves=3).fit(table, table["time_s"])
    with pytest.raises(PredictionError, match="pool"):
        model.predict(table | {"kind": ["pool"] * len(table["gpu"])})


def test_a_gpu_that_was_not_measured_is_outside() -> None:
    table = made_layers()
    model = LayerTime(trees=5, leaves=7).fit(table, table["time_s"])
    made = model.estimate(table | {"gpu": ["A100"] * len(table["gpu"])})
    assert not made.in_domain.any()


def test_boosted_trees_are_kept_as_scikit_learn_grew_them() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(0)
    table = rng.normal(size=(500, 4)).astype(np.float32).astype(np.float64)
    grown = HistGradientBoostingRegressor(max_iter=20, random_state=0).fit(table, table[:, 0] * table[:, 1])
    forest = Forest.of(grown)
    assert forest.predict(table) == pytest.approx(grown.predict(table), abs=1e-5)
    again = Forest.from_document(json.loads(json.dumps(forest.to_document())))
    assert np.array_equal(again.predict(table), forest.predict(table))


def test_measured_layers_that_were_left_out(data_dir: Path) -> None:
    table = justus.layers(data_dir)
    assert set(table["kind"]) == {"conv", "dense"}
    rng = np.random.default_rng(5)
    kept = rng.permutation(len(table["time_s"]))[:20_000]
    seen, new = rows_where(table, kept[:18_000]), rows_where(table, kept[18_000:])
    reached = score(new["time_s"], LayerTime(trees=60).fit(seen, seen["time_s"]).estimate(new))
    assert reached.mape < 0.15
    assert 0.85 < reached.coverage < 0.95
    lines = PerLayerLinear().fit(linear_columns(seen), seen["time_s"])
    assert score(new["time_s"], lines.estimate(linear_columns(new))).mape > reached.mape


def test_a_folder_without_layers_is_named(tmp_path: Path) -> None:
    with pytest.raises(PredictionError, match="justus2018"):
        justus.layers(tmp_path)
