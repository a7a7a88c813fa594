"""Step times on MIG slices: a world whose truth is the formula, the edges, and MISO's measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.predict.base import PredictionError
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data.miso import mig_times
from gpuwise.predict.fitting.recipes.mig import RECIPES
from gpuwise.predict.fitting.scores import score
from gpuwise.predict.sharing.mig import MigTime, slice_fractions

PROFILES = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"]


def world(models: int = 8, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Jobs of host work beside GPU work (p = 2), where a busy ratio and traffic make the GPU work."""
    rng = np.random.default_rng(seed)
    rows = 4 * models
    part = {name: np.tile(column, models) for name, column in slice_fractions("A100", PROFILES).items()}
    busy, traffic = np.repeat(rng.uniform(0.3, 0.9, models), 4), np.repeat(rng.uniform(0.02, 0.5, models), 4)
    step = np.repeat(rng.uniform(0.01, 0.2, models), 4)
    compute, memory = 0.2 * busy / (1 - busy), 0.4 * (traffic / 0.1) ** 0.7
    slower = compute / part["compute_frac"] + memory / np.sqrt(part["memory_frac"] * part["compute_frac"])
    time = step * np.sqrt((1 + slower**2) / (1 + (compute + memory) ** 2)) * np.exp(rng.normal(0.0, 0.02, rows))
    names = np.repeat([f"model-{number}" for number in range(models)], 4)
    return {"model": names, "step_time_s": step, "gpu_util_frac": busy, "mem_util_frac": traffic, **part}, time


def test_it_keeps_to_the_contract() -> None:
    check_predictor(MigTime(), *world())


def test_models_never_seen_are_predicted_where_the_formula_is_the_truth() -> None:
    known, unknown = world(seed=0), world(seed=1)
    made = MigTime().fit(*known).predict(unknown[0])
    assert np.mean(np.abs(made / unknown[1] - 1)) < 0.06


def test_on_the_whole_gpu_the_time_is_the_one_that_was_given() -> None:
    X, y = world()  # noqa: N806
    whole = {**{name: column[:1] for name, column in X.items()}, "compute_frac": [1.0], "memory_frac": [1.0]}
    made = MigTime().fit(X, y).estimate(whole)
    assert made.value[0] == made.low[0] == made.high[0] == X["step_time_s"][0]


def test_a_smaller_slice_is_never_faster() -> None:
    X, y = world()  # noqa: N806
    fitted = MigTime().fit(X, y)
    parts = np.linspace(0.05, 1.0, 30)
    for busy, traffic in [(0.01, 0.0), (0.5, 0.1), (1.0, 1.0)]:
        asked = {"step_time_s": np.ones(30), "gpu_util_frac": np.full(30, busy), "mem_util_frac": np.full(30, traffic)}
        times = fitted.predict({**asked, "compute_frac": parts, "memory_frac": parts})
        assert np.all(np.diff(times) <= 1e-12)


def test_without_utilization_the_interval_is_wider_and_the_row_is_out_of_domain() -> None:
    X, y = world()  # noqa: N806
    fitted = MigTime().fit(X, y)
    known, blind = fitted.estimate(X), fitted.estimate({**X, "gpu_util_frac": np.full(len(y), np.nan)})
    assert np.median((blind.high - blind.low) / blind.value) > 2 * np.median((known.high - known.low) / known.value)
    assert not blind.in_domain.any()


def test_slices_are_parts_of_the_largest_profile() -> None:
    parts = slice_fractions("A100", ["1g.5gb", "3g.20gb", "7g.40gb"])
    assert parts["compute_frac"] == pytest.approx([14 / 98, 42 / 98, 1.0])
    assert parts["memory_frac"] == pytest.approx([1 / 8, 4 / 8, 1.0])
    assert slice_fractions("H100", ["1g.20gb"])["compute_frac"] == pytest.approx([26 / 132])


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("compute_frac", 0.0, "compute_frac is 0.0"),
        ("memory_frac", 1.5, "memory_frac is 1.5"),
        ("step_time_s", -1.0, "-1"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_value(column: str, value: float, says: str) -> None:
    X, y = world()  # noqa: N806
    with pytest.raises(PredictionError, match=says):
        MigTime().fit(X, y).predict({**X, column: np.full(len(y), value)})


def test_one_model_is_too_few() -> None:
    X, y = world(models=1)  # noqa: N806
    with pytest.raises(PredictionError, match="at least two models"):
        MigTime().fit(X, y)


def test_times_of_slices_are_read_beside_the_whole_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "miso"
    folder.mkdir()
    head = "compute_slices,memory_gb,model,batch_size,n_iterations,median_iter_s,mean_iter_s,std_iter_s\n"
    body = "2,10,net,8,9,0.3,0.31,0\n7,40,net,8,9,0.1,0.11,0\n1,5,alone,8,9,0.3,0.31,0\n"
    (folder / "mig_iteration_time_summary.csv").write_text(head + body, encoding="utf-8")
    used = "model,batch_size,sm_util_pct,mem_bw_util_pct\nother,8,50,10\n"
    (folder / "utilization_summary_a100.csv").write_text(used, encoding="utf-8")
    rows = mig_times(tmp_path, "median")
    assert rows["model"].tolist() == ["net"], "nothing to compare the other model with"
    assert (rows["time_s"][0], rows["step_time_s"][0], rows["profile"][0]) == (0.3, 0.1, "2g.10gb")
    assert np.isnan(rows["gpu_util_frac"][0])


def test_models_left_out_of_miso_are_within_15_percent(data_dir: Path) -> None:
    if not (data_dir / "miso").is_dir():
        pytest.skip("no miso in the folder of measured data")
    unseen = next(iter(RECIPES[0].holdouts(data_dir)))
    scores = score(unseen.measured, unseen.estimates)
    assert scores.rows >= 80
    assert scores.mape < 0.15
    assert 0.85 <= scores.coverage <= 0.95
