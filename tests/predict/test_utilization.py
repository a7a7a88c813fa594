"""GPU utilization: a world whose truth is the formula, what is not known, the tables of papers, and MISO's jobs."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.graph.ops import Graph, Kind, Op, Optimizer, Phase, Precision
from gpuwise.predict.base import PredictionError
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data.utilization import miso_utilization, mlperf_utilization, packing_utilization
from gpuwise.predict.time.utilization import CANDIDATES, HOST_S, KERNEL_S, GpuUtilization
from gpuwise.predict.time.work import COMPUTE_SHARE, SHORTEST_KERNEL_S, work_row


def world(architectures: int = 10, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Jobs at four batch sizes whose utilization is the share in which kernels run, give or take a little."""
    rng = np.random.default_rng(seed)
    rows = 4 * architectures
    busy = np.clip(
        np.repeat(rng.uniform(0.05, 0.7, architectures), 4) * np.tile([0.7, 0.9, 1.1, 1.3], architectures), 0, 1
    )
    step = np.repeat(rng.uniform(0.005, 0.2, architectures), 4)
    kernels = np.repeat(rng.integers(50, 900, architectures).astype(float), 4)
    least = busy + KERNEL_S * kernels / step
    share = np.clip(np.minimum(2.0 * least, np.maximum(least, 1.0 - HOST_S * kernels / step)), 0.02, 0.95)
    logit = np.log(share / (1.0 - share)) + rng.normal(0.0, 0.1, rows)
    X = {  # noqa: N806
        "architecture": np.repeat([f"net-{number}" for number in range(architectures)], 4),
        "testbed": np.full(rows, "lab"),
        "busy_frac": busy,
        "busy_time_s": busy * step,
        "step_time_s": step,
        "flops": busy * step * 1e13,
        "kernels": kernels,
        "batch_size": np.tile([16.0, 32.0, 64.0, 128.0], architectures),
        "parameter_bytes": np.full(rows, 1e8),
        "activation_bytes": busy * step * 1e10,
    }
    return X, 100.0 / (1.0 + np.exp(-logit))


def rmsle(made: Any, truth: Any) -> float:
    return float(np.sqrt(np.mean((np.log1p(made) - np.log1p(truth)) ** 2)))


def step_of(batch: int, optimizer: Optimizer = Optimizer.SGD) -> Graph:
    """A large product that grows with the batch, a tiny one, and an update that does not grow."""
    ops = (
        Op(Kind.LINEAR, Phase.FORWARD, "aten.mm", "wide", 1e12 * batch, 1e6 + 10.0 * batch, 0.0),
        Op(Kind.LINEAR, Phase.FORWARD, "aten.mm", "tiny", 10.0, 10.0, 0.0),
        Op(Kind.OPTIMIZER, Phase.UPDATE, "optimizer.sgd", "", 100.0, 1e9, 0.0),
    )
    return Graph("net", batch, Precision.FP32, optimizer, ops, 1, 4.0, 0.0, 1.0, (batch, 3), 1.0, 7.0 * batch)


def test_it_keeps_to_the_contract() -> None:
    check_predictor(GpuUtilization(), *world(6))


def test_architectures_never_seen_are_predicted_where_the_formula_is_the_truth() -> None:
    X, y = world(seed=1)  # noqa: N806
    made = GpuUtilization().fit(*world(seed=0)).estimate(X)
    always_the_mean = np.full(len(y), world(seed=0)[1].mean())
    assert rmsle(made.value, y) < 0.2
    assert rmsle(made.value, y) < 0.5 * rmsle(always_the_mean, y)
    assert np.mean((made.low <= y) & (y <= made.high)) > 0.8


def seen_as(busy: float, kernels: float, step_s: float, fitted: GpuUtilization) -> float:
    """The prediction for a job whose kernels' work takes a share of the step."""
    asked = {name: np.asarray(column)[:1] for name, column in world(6)[0].items()}
    made = {"busy_frac": busy, "kernels": kernels, "step_time_s": step_s, "busy_time_s": busy * step_s}
    return float(fitted.predict({**asked, **{name: np.array([value]) for name, value in made.items()}})[0])


def test_a_small_job_that_waits_for_its_data_is_seen_at_little_work() -> None:
    fitted = GpuUtilization().fit(*world())
    assert seen_as(0.02, 30.0, 0.01, fitted) < 15.0
    assert seen_as(0.9, 30.0, 0.01, fitted) > 80.0


def test_launching_many_kernels_leaves_the_device_waiting() -> None:
    fitted = GpuUtilization().fit(*world())
    few, many = seen_as(0.4, 40.0, 0.01, fitted), seen_as(0.4, 160.0, 0.01, fitted)
    assert few > 75.0 > many, "the host takes a tenth of the step, and two fifths"


def test_trees_are_chosen_only_where_they_are_surely_better() -> None:
    X, y = world()  # noqa: N806
    assert GpuUtilization().fit(X, y).chosen_ in CANDIDATES[:2]
    by_batch = np.where(X["batch_size"] > 40.0, 10.0, 90.0)
    assert GpuUtilization().fit(X, by_batch).chosen_ in CANDIDATES[2:]


def test_no_interval_ends_above_a_hundred_percent() -> None:
    X, y = world(6)  # noqa: N806
    busy = {**X, "busy_frac": np.ones(len(y)), "step_time_s": np.full(len(y), 10.0)}
    made = GpuUtilization().fit(X, y).estimate(busy)
    assert made.high.max() <= 100.0
    assert made.low.min() > 0.0


def test_a_step_of_unknown_time_takes_its_kernels_and_the_host() -> None:
    X, y = world(6)  # noqa: N806
    X["step_time_s"] = X["busy_time_s"] + (KERNEL_S + 5e-5) * X["kernels"]
    X["busy_frac"] = X["busy_time_s"] / X["step_time_s"]
    fitted = GpuUtilization().fit(X, y)
    assert fitted.host_s_ == pytest.approx(5e-5)
    unknown = np.full(len(y), np.nan)
    blind = {**X, "step_time_s": unknown, "busy_frac": unknown}
    assert fitted.predict(blind) == pytest.approx(fitted.predict(X))


def test_a_job_of_which_nothing_is_known_is_outside() -> None:
    X, y = world(6)  # noqa: N806
    fitted = GpuUtilization().fit(X, y)
    unknown = np.full(len(y), np.nan)
    nothing = {**X, **dict.fromkeys(("step_time_s", "busy_frac", "busy_time_s", "kernels", "flops"), unknown)}
    made = fitted.estimate(nothing)
    assert np.isfinite(made.value).all()
    assert not made.in_domain.any()


def test_another_testbed_is_outside() -> None:
    X, y = world(6)  # noqa: N806
    fitted = GpuUtilization().fit(X, y)
    assert not fitted.estimate({**X, "testbed": np.full(len(y), "elsewhere")}).in_domain.any()


@pytest.mark.parametrize(("column", "value"), [("flops", 1e20), ("kernels", 1e7), ("step_time_s", 1e4)])
def test_a_job_far_larger_than_any_of_the_fit_is_outside(column: str, value: float) -> None:
    X, y = world(6)  # noqa: N806
    fitted = GpuUtilization().fit(X, y)
    assert fitted.estimate(X).in_domain.all()
    assert not fitted.estimate({**X, column: np.full(len(y), value)}).in_domain.any()


def test_a_size_that_is_not_known_does_not_put_a_job_outside() -> None:
    X, y = world(6)  # noqa: N806
    unknown = np.full(len(y), np.nan)
    assert GpuUtilization().fit(X, y).estimate({**X, "flops": unknown}).in_domain.all()
    blind = {**X, "flops": unknown, "kernels": unknown}
    assert GpuUtilization().fit(blind, y).estimate(X).in_domain.all(), "nothing is said of what the fit did not know"


@pytest.mark.parametrize("wrong", [0.0, 101.0])
def test_percent_that_cannot_be_are_refused(wrong: float) -> None:
    X, y = world(6)  # noqa: N806
    with pytest.raises(PredictionError, match="percent"):
        GpuUtilization().fit(X, np.where(np.arange(len(y)) == 0, wrong, y))


def test_one_architecture_alone_is_refused_by_its_name() -> None:
    X, y = world(1)  # noqa: N806
    with pytest.raises(PredictionError, match="net-0 alone"):
        GpuUtilization().fit(X, y)


def test_busy_time_lies_on_the_line_through_two_traces() -> None:
    row = work_row(step_of(2), step_of(4), 8, "V100")
    assert row["flops"] == 8e12 + 10.0 + 100.0
    assert row["activation_bytes"] == 7.0 * 8
    direct = work_row(step_of(8), step_of(16), 8, "V100")
    assert row["busy_time_s"] == pytest.approx(direct["busy_time_s"])


def test_busy_time_by_hand() -> None:
    row = work_row(step_of(2), step_of(4), 2, "V100")
    wide = 2e12 / (COMPUTE_SHARE * 15.7e12)  # 15.7 TFLOPS at the boost clock
    update = 1e9 / (0.7 * 900e9)
    assert row["busy_time_s"] == pytest.approx(wide + SHORTEST_KERNEL_S + update, rel=0.02)


def test_kernels_that_repeat_over_time_count_as_often() -> None:
    once, often = work_row(step_of(2), step_of(4), 2, "V100"), work_row(step_of(2), step_of(4), 2, "V100", pieces=100)
    assert often["kernels"] == 100 * once["kernels"]
    assert often["busy_time_s"] == pytest.approx(once["busy_time_s"] + 99 * SHORTEST_KERNEL_S, rel=1e-3)


def test_traces_that_do_not_match_are_refused() -> None:
    with pytest.raises(PredictionError, match="same operators"):
        work_row(step_of(4), step_of(2), 8, "V100")
    with pytest.raises(PredictionError, match="same operators"):
        work_row(step_of(2), replace(step_of(4), ops=()), 8, "V100")


def test_the_busy_share_of_mlperf_jobs_comes_from_their_times_on_two_gpus() -> None:
    table = mlperf_utilization()
    share = dict(zip(table["label"].tolist(), table["busy_frac"].tolist(), strict=True))
    assert len(share) == 9
    gain = 14.90 / 9.318
    least = (16384 / 10873 - 1) / (gain - 1)  # 4:33:04 and 3:01:13
    assert share["mlperf_IC"] == pytest.approx((1 + least) / 2)
    assert share["mlperf_RM"] == 0.5  # slower on the faster GPU: anything from none to all of the time


def test_a_network_has_one_name_in_all_tables(data_dir: Path) -> None:
    if find_spec("torchvision") is None:  # not imported here: its compiled part may not fit this PyTorch
        pytest.skip("torchvision is not installed")
    tables = [miso_utilization(data_dir), mlperf_utilization(), packing_utilization()]
    named = {label: name for table in tables for label, name in zip(table["label"], table["architecture"], strict=True)}
    assert named["miso_resnet"] == named["gandiva_ResNet-50"] == named["mlperf_IC"] == "resnet50"
    assert named["miso_deepspeech2"] == named["mlperf_SR"]
    assert named["gandiva_ResNext-50"] != named["gandiva_ResNet-50"]
