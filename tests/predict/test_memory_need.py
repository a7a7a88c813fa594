"""Memory: a world whose truth is the formula, its parts by hand, running out of it, and SchedTune's measurements."""

from __future__ import annotations

import csv
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.graph.ops import Graph, Kind, Op, Optimizer, Phase, Precision
from gpuwise.predict.base import PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data.peak_memory import schedtune_memory
from gpuwise.predict.fitting.recipes.memory import memory_table
from gpuwise.predict.intervals.conformal import widened
from gpuwise.predict.memory.need import MemoryNeed
from gpuwise.predict.memory.parts import AUTOTUNE_BYTES, at_batch, memory_features

MIB, GIB = 2.0**20, 2.0**30
CONTEXT = {"K80": 0.4 * GIB, "V100": 1.2 * GIB}


def world(architectures: int = 12, seed: int = 0, **other: Any) -> tuple[dict[str, Any], Any]:
    """PyTorch jobs at two batch sizes on two GPUs that take what the formula says, give or take 2 %."""
    rng = np.random.default_rng(seed)
    rows = 4 * architectures

    def each(low: float, high: float) -> Any:
        return np.repeat(np.exp(rng.uniform(np.log(low), np.log(high), architectures)), 4)

    batch = np.tile([8.0, 8.0, 64.0, 64.0], architectures)
    parameters, saved = each(20 * MIB, 600 * MIB), each(20 * MIB, 120 * MIB) * batch
    X: dict[str, Any] = {  # noqa: N806
        "architecture": np.repeat([f"net-{number}" for number in range(architectures)], 4),
        "framework": np.full(rows, "pytorch"),
        "measure": np.full(rows, "device"),
        "gpu": np.tile(["K80", "V100"], 2 * architectures),
        "batch_size": batch,
        "parameter_bytes": parameters,
        "optimizer_states": np.ones(rows),
        "largest_layer_bytes": parameters * 0.3,
        "saved_bytes": saved,
        "index_bytes": saved * 0.05,
        "largest_write_bytes": saved * 0.04,
        "winograd_bytes": saved * 0.1,
        "fft_bytes": np.zeros(rows),
        "convolutions": np.full(rows, 20.0),
        **other,
    }
    context = np.array([CONTEXT[gpu] for gpu in X["gpu"]])
    tensors = 0.9 * parameters * 3 + parameters * 0.3 + 1.1 * saved + saved * 0.04 + 0.3 * saved * 0.1
    return X, (context + tensors) * np.exp(rng.normal(0.0, 0.02, rows))


def convolution(batch: int = 2) -> Op:
    """3 × 3, 64 to 64 channels, 28 × 28 pixels."""
    detail = {"kernel": (3, 3), "stride": (1, 1), "groups": 1, "channels_in": 64, "channels_out": 64}
    output = (batch, 64, 28, 28)
    return Op(Kind.CONV, Phase.FORWARD, "aten.convolution", "conv", 1.0, 10.0, 4.0 * 64 * 784 * batch, output,
              parameters=36864, detail=detail)  # fmt: skip


def graph(*ops: Op, optimizer: Optimizer = Optimizer.ADAM) -> Graph:
    return Graph("net", 2, Precision.FP32, optimizer, ops, 36864, 4.0 * 36864, 0.0, 10.0, (2, 64, 28, 28), 900.0, 800.0)


def test_it_keeps_to_the_contract() -> None:
    check_predictor(MemoryNeed(), *world())


def test_architectures_never_seen_are_predicted_where_the_formula_is_the_truth() -> None:
    X, y = world(seed=1)  # noqa: N806
    made = MemoryNeed().fit(*world(seed=0)).estimate(X)
    assert np.mean(np.abs(made.value / y - 1)) < 0.05
    assert np.mean((made.low <= y) & (y <= made.high)) > 0.8


def test_few_jobs_need_more_than_was_said() -> None:
    X, y = world(seed=1)  # noqa: N806
    known = world(seed=0)
    safe, middle = MemoryNeed(quantile=0.85).fit(*known), MemoryNeed(quantile=0.5).fit(*known)
    assert np.mean(safe.predict(X) < y) < 0.3 < np.mean(middle.predict(X) < y)


def test_where_the_margin_would_waste_too_much_the_middle_is_given() -> None:
    X, y = world()  # noqa: N806
    noisy = y * np.exp(np.random.default_rng(3).normal(0.0, 0.6, len(y)))
    assert MemoryNeed().fit(X, y).quantile_ == 0.95, "the highest that may be"
    assert MemoryNeed().fit(X, noisy).quantile_ == 0.5


def test_the_margin_is_as_high_as_the_budget_allows() -> None:
    X, y = world()  # noqa: N806
    noisy = y * np.exp(np.random.default_rng(3).normal(0.0, 0.1, len(y)))
    tight, wide = (MemoryNeed(budget=budget).fit(X, noisy) for budget in (0.1, 0.15))
    assert 0.5 < tight.quantile_ < wide.quantile_
    assert np.all(tight.predict(X) < wide.predict(X))


def test_a_job_that_is_mostly_workspace_has_a_wider_interval_and_a_larger_margin() -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    heavy = {**X, "winograd_bytes": 50 * X["winograd_bytes"]}
    plain, wide = fitted.estimate(X), fitted.estimate(heavy)
    assert np.all(wide.high / wide.low > plain.high / plain.low)
    assert np.all(wide.value / fitted.expected(heavy) > plain.value / fitted.expected(X))


def test_a_pool_is_off_by_as_much_whatever_is_in_it() -> None:
    X, y = world()  # noqa: N806
    pooled = {**X, "framework": np.full(len(y), "tensorflow")}
    fitted = MemoryNeed().fit(pooled, y)
    found = fitted.estimate({**pooled, "winograd_bytes": 50 * X["winograd_bytes"]})
    assert found.high / found.value == pytest.approx(found.high[0] / found.value[0])


def test_one_architecture_alone_is_refused_by_its_name() -> None:
    X, y = world(1)  # noqa: N806
    with pytest.raises(PredictionError, match="net-0 alone"):
        MemoryNeed().fit(X, y)


def test_contexts_of_gpus_are_found() -> None:
    found = MemoryNeed().fit(*world()).contexts_["pytorch"]
    assert found["V100"] - found["K80"] == pytest.approx(0.8 * GIB, rel=0.1)


def test_an_unknown_gpu_has_the_largest_context_and_is_outside() -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    asked = {**X, "gpu": np.full(len(y), "H100")}
    assert np.all(fitted.breakdown(asked)["context"] == max(fitted.contexts_["pytorch"].values()))
    assert not fitted.estimate(asked).in_domain.any()


def test_a_framework_is_inside_only_on_gpus_where_it_was_measured_so() -> None:
    X, y = world()  # noqa: N806
    other = {**X, "framework": np.full(len(y), "tensorflow"), "gpu": np.full(len(y), "P100")}
    other["measure"] = np.full(len(y), "allocator")
    both = {name: np.concatenate([X[name], other[name]]) for name in X}
    fitted = MemoryNeed().fit(both, np.concatenate([y, y]))
    assert fitted.estimate(both).in_domain.all()
    assert not fitted.estimate({**X, "gpu": other["gpu"]}).in_domain.any(), "only TensorFlow was measured on it"
    assert not fitted.estimate({**other, "gpu": X["gpu"]}).in_domain.any()
    assert not fitted.estimate({**other, "measure": X["measure"]}).in_domain.any(), "its context there is not known"


def test_the_parts_add_up_and_adam_keeps_two_values_more_than_sgd() -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    parts = fitted.breakdown(X)
    assert sum(parts.values()) == pytest.approx(fitted.expected(X))
    adam = fitted.breakdown({**X, "optimizer_states": np.full(len(y), 2.0)})
    plain = fitted.breakdown({**X, "optimizer_states": np.zeros(len(y))})
    assert not plain["optimizer"].any()
    assert adam["optimizer"] == pytest.approx(2 * plain["parameters"])
    assert adam["gradients"] == pytest.approx(plain["gradients"])


def test_frozen_parameters_have_neither_gradients_nor_optimizer_states() -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    all_of_them, half = X["parameter_bytes"], 0.5 * X["parameter_bytes"]
    whole, some = fitted.breakdown(X), fitted.breakdown({**X, "trainable_bytes": half})
    assert some["parameters"] == pytest.approx(whole["parameters"])
    assert some["gradients"] == pytest.approx(0.5 * whole["gradients"])
    assert some["optimizer"] == pytest.approx(0.5 * whole["optimizer"])
    assert np.all(fitted.predict({**X, "trainable_bytes": half}) < fitted.predict(X))
    assert fitted.predict({**X, "trainable_bytes": all_of_them}).tolist() == fitted.predict(X).tolist()


def test_a_forward_pass_alone_has_parameters_only() -> None:
    X, y = world()  # noqa: N806
    alone = {**X, "trainable_bytes": np.zeros(len(y)), "optimizer_states": np.zeros(len(y))}
    parts = MemoryNeed().fit(X, y).breakdown(alone)
    assert parts["parameters"].min() > 0.0
    assert not parts["gradients"].any()
    assert not parts["optimizer"].any()


def test_frozen_parameters_are_learned_from() -> None:
    X, y = world()  # noqa: N806
    frozen = {**X, "trainable_bytes": np.zeros(len(y))}
    spared = y - 0.9 * 2 * X["parameter_bytes"]
    found = MemoryNeed().fit(frozen, spared).coefficients_["pytorch"]["states"]
    assert found == pytest.approx(0.9, abs=0.1)


def test_the_bytes_that_are_trained_come_from_the_graph() -> None:
    whole = graph(convolution())
    assert memory_features(whole)["trainable_bytes"] == whole.parameter_bytes
    assert memory_features(replace(whole, trainable_bytes=100.0))["trainable_bytes"] == 100.0
    assert memory_features(graph(convolution(), optimizer=Optimizer.NONE))["trainable_bytes"] == 0.0


def test_running_out_is_sure_with_little_memory_and_unlikely_with_plenty() -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    risk = np.array([fitted.p_oom(X, factor * y) for factor in (0.5, 0.9, 1.0, 1.1, 2.0)])
    assert np.all(np.diff(risk, axis=0) <= 0)
    assert risk[0].min() > 0.99
    assert risk[-1].max() < 0.01


def test_the_risk_is_as_large_as_the_share_of_jobs_that_run_out() -> None:
    X, y = world(architectures=60, seed=2)  # noqa: N806
    fitted = MemoryNeed().fit(*world(seed=0))
    capacity = 0.99 * fitted.expected(X)
    assert fitted.p_oom(X, capacity).mean() == pytest.approx(np.mean(y > capacity), abs=0.15)


def test_the_pool_of_tensorflow_is_a_power_of_two_beside_what_cudnn_may_try() -> None:
    X, y = world()  # noqa: N806
    rows = len(y)
    pooled = {**X, "framework": np.full(rows, "tensorflow"), "saved_bytes": np.full(rows, 100 * MIB)}
    pooled |= {"parameter_bytes": np.full(rows, 50 * MIB), "largest_write_bytes": np.full(rows, MIB)}
    fitted = MemoryNeed().fit(pooled, np.full(rows, 5.0 * GIB))
    both = fitted.expected(pooled) - fitted.breakdown(pooled)["context"]
    without = {**pooled, "convolutions": np.zeros(rows)}
    pool = fitted.expected(without) - fitted.breakdown(without)["context"]
    assert np.all(np.log2(pool) % 1 == 0)
    assert np.all(pool < GIB)
    assert both == pytest.approx(pool + AUTOTUNE_BYTES)


def test_tensors_alone_need_no_context() -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    alone = {**X, "measure": np.full(len(y), "allocator")}
    assert not fitted.breakdown(alone)["context"].any()


def test_features_of_a_convolution_by_hand() -> None:
    row = memory_features(graph(convolution()))
    assert row["optimizer_states"] == 2.0
    assert row["largest_layer_bytes"] == 4 * 36864
    assert row["winograd_bytes"] == 36 * 4 * 2 * 7 * 7 * (64 + 64)  # 7 × 7 tiles of 4 × 4 pixels, batch of 2
    assert row["fft_bytes"] == 8 * 32 * 17 * 64 * 64  # 28 + 3 − 1 pixels are padded to 32; half of the plane and one
    assert row["convolutions"] == 1.0


def test_only_what_each_sample_needs_grows_with_the_batch() -> None:
    row = memory_features(graph(convolution()))
    larger = at_batch(row, 2, 16)
    assert larger["saved_bytes"] == 8 * row["saved_bytes"]
    assert larger["winograd_bytes"] == 8 * row["winograd_bytes"]
    assert larger["fft_bytes"] == row["fft_bytes"]
    assert larger["parameter_bytes"] == row["parameter_bytes"]


def test_max_pooling_leaves_an_index_of_eight_bytes_for_each_output() -> None:
    pool = Op(Kind.POOL, Phase.FORWARD, "aten.max_pool2d_with_indices", "pool", 1.0, 1.0, 1.0, (2, 64, 14, 14))
    assert memory_features(graph(pool))["index_bytes"] == 8 * 2 * 64 * 14 * 14


def test_few_groups_widen_the_residuals_about_their_middle() -> None:
    residuals = np.array([-0.1, 0.0, 0.1])
    assert widened(residuals, 6) == pytest.approx(residuals * 2.015 / 1.645, rel=1e-3)  # Student's t, 5 degrees
    assert np.ptp(widened(residuals, 1000)) == pytest.approx(0.2, rel=1e-2)


@pytest.mark.parametrize(
    ("change", "says"),
    [({"framework": ["caffe"]}, "caffe/device"), ({"measure": ["guess"]}, "pytorch/guess")],
)
def test_an_unknown_framework_or_measure_is_named(change: dict[str, Any], says: str) -> None:
    X, y = world()  # noqa: N806
    fitted = MemoryNeed().fit(X, y)
    with pytest.raises(PredictionError, match=says):
        fitted.predict({**rows_where(X, np.arange(len(y)) == 0), **change})


def test_a_capacity_of_nothing_and_rows_of_nothing_are_refused() -> None:
    X, y = world()  # noqa: N806
    with pytest.raises(PredictionError, match="above 0"):
        MemoryNeed().fit(X, y).p_oom(X, 0.0)
    with pytest.raises(PredictionError, match="more than 0 bytes"):
        MemoryNeed().fit(X, np.zeros(len(y)))


def test_measured_networks_left_out_are_predicted_within_an_eighth(data_dir: Path, tmp_path: Path) -> None:
    if find_spec("torchvision") is None:  # not imported here: its compiled part may not fit this PyTorch
        pytest.skip("torchvision is not installed")
    with (data_dir / "schedtune" / "model_stats.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] in ("resnet18", "resnet34", "resnet50", "vgg11")]
    (tmp_path / "schedtune").mkdir()
    with (tmp_path / "schedtune" / "model_stats.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    table = schedtune_memory(tmp_path)
    assert {"K80", "T4", "RTX3070", "V100", "RTX3090"} == set(table["gpu"].tolist())
    out = table["architecture"] == "resnet34"
    seen, asked = rows_where(table, ~out), rows_where(table, out)
    made = MemoryNeed(quantile=0.5).fit(seen, seen["peak_bytes"]).predict(asked)
    assert np.mean(np.abs(made / asked["peak_bytes"] - 1)) < 0.125


def test_a_network_has_one_name_in_all_tables(data_dir: Path) -> None:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    rows = memory_table(data_dir)
    named = dict(zip(rows["label"].tolist(), rows["architecture"].tolist(), strict=True))
    assert named["miso_resnet"] == named["salus_resnet50"] == named["schedtune_resnet50"] == "resnet50"
    assert named["salus_googlenet"] == "googlenet", "however it was rebuilt"
    saved = dict(zip(rows["label"].tolist(), rows["saved_bytes"] / rows["batch_size"], strict=True))
    assert saved["salus_resnet50"] < 0.96 * saved["schedtune_resnet50"], "strides come earlier in TensorFlow's"
    assert np.array_equal(rows["trainable_bytes"], rows["parameter_bytes"])
