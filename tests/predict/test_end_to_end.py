"""End-to-end time as published: inverse and cross terms, chosen stepwise."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwise.predict.base import PredictionError
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.scaling.end_to_end import EndToEndTime, augmented, select


def runs(noise: float = 0.0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Time = 5 s + 0.002 s for each iteration and sample of the batch, shared by the GPUs."""
    rng = np.random.default_rng(1)
    table = {
        "iterations": rng.choice([100.0, 200.0, 400.0, 800.0], 80),
        "batch": rng.choice([8.0, 16.0, 32.0, 64.0], 80),
        "gpus": rng.choice([1.0, 2.0, 4.0], 80),
        "threads": rng.choice([2.0, 4.0, 8.0], 80),
    }
    time_s = 5.0 + 0.002 * table["iterations"] * table["batch"]
    return table, time_s * np.exp(noise * rng.standard_normal(80))


def test_inverse_and_cross_terms_are_made_of_different_features_only() -> None:
    made = augmented({"a": np.array([1.0, 2.0]), "b": np.array([4.0, 5.0]), "same": np.array([3.0, 3.0])})
    assert set(made) == {"a", "b", "1/a", "1/b", "a·b", "a·1/b", "b·1/a", "1/a·1/b"}
    assert made["a·1/b"].tolist() == [0.25, 0.4]


def test_a_feature_with_a_zero_has_no_inverse() -> None:
    assert set(augmented({"disk_delay_s": np.array([0.0, 1.0])})) == {"disk_delay_s"}


def test_stepwise_keeps_what_explains_and_drops_the_rest() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 6))
    y = 3.0 * features[:, 1] - 2.0 * features[:, 4] + 0.1 * rng.standard_normal(60)
    assert {1, 4} <= set(select(features, y)) <= {1, 4, *select(features, y)}
    assert len(select(features, y)) <= 3


def test_a_feature_that_stood_for_two_others_leaves_when_they_are_in() -> None:
    """The sum of two features enters first; with both of them in, it explains nothing more."""
    rng = np.random.default_rng(3)
    one, two = rng.standard_normal((2, 200))
    y = one + two + 0.02 * rng.standard_normal(200)
    features = np.stack([one, two, one + two + 0.3 * rng.standard_normal(200)], axis=1)
    assert 2 not in select(features, y)


def test_selection_of_nothing_is_the_mean() -> None:
    rng = np.random.default_rng(4)
    features, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    assert len(select(features, y, enter=1e-6)) == 0


def test_the_law_is_found_and_extrapolated() -> None:
    table, time_s = runs(noise=0.01)
    model = EndToEndTime().fit(table, time_s)
    assert "iterations·batch" in model.models_[""]["terms"]
    asked = {"iterations": [1600.0], "batch": [128.0], "gpus": [2.0], "threads": [4.0]}
    assert model.predict(asked)[0] == pytest.approx(5.0 + 0.002 * 1600 * 128, rel=0.1)
    assert not model.estimate(asked).in_domain[0]


def test_each_value_of_by_has_a_regression_of_its_own() -> None:
    batch = np.array([8.0, 16.0, 32.0, 64.0] * 2)
    job = np.array(["slow"] * 4 + ["fast"] * 4)
    time_s = np.where(job == "slow", 10.0 * batch, batch)
    model = EndToEndTime(by="job").fit({"batch": batch, "job": job}, time_s)
    assert model.predict({"batch": [128.0, 128.0], "job": ["slow", "fast"]}) == pytest.approx([1280.0, 128.0])
    with pytest.raises(PredictionError, match="'other' was not in the data"):
        model.predict({"batch": [8.0], "job": ["other"]})


def test_time_is_never_negative() -> None:
    model = EndToEndTime().fit({"batch": [10.0, 11.0, 12.0, 13.0]}, [4.0, 3.0, 2.0, 1.0])
    assert model.predict({"batch": [1000.0]})[0] > 0


def test_it_keeps_the_contract() -> None:
    table, time_s = runs(noise=0.05)
    check_predictor(EndToEndTime(), table, time_s)


@pytest.mark.parametrize("time_s", [[1.0, 0.0], [1.0, float("nan")], []])
def test_times_that_cannot_be_are_refused(time_s: list[float]) -> None:
    with pytest.raises(PredictionError, match="finite and above 0"):
        EndToEndTime().fit({"batch": np.ones(len(time_s))}, time_s)


def test_no_known_column_is_an_error_that_names_them() -> None:
    with pytest.raises(PredictionError, match="iterations, batch, gflops"):
        EndToEndTime().fit({"colour": [1.0]}, [1.0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_size_that_cannot_be_is_refused_with_its_column_and_value(bad: float) -> None:
    table, time_s = runs()
    model = EndToEndTime().fit(table, time_s)
    asked = {name: column[:3] for name, column in table.items()}
    spoiled = {**table, "batch": np.where(np.arange(80) == 7, bad, table["batch"])}
    with pytest.raises(PredictionError, match=rf"column 'batch' is {bad:g} in row 7"):
        EndToEndTime().fit(spoiled, time_s)
    with pytest.raises(PredictionError, match=rf"column 'batch' is {bad:g} in row 1"):
        model.predict({**asked, "batch": [8.0, bad, 8.0]})
    with pytest.raises(PredictionError, match="column 'gpus' has 2 rows, not 3"):
        model.predict({**asked, "gpus": [1.0, 1.0]})


def delayed(delays: list[float]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Time = 5 s + 100 s for each second of delay + 0.5 s for each sample of the batch."""
    table = {"disk_delay_s": np.repeat(delays, 8), "batch": np.tile(2.0 ** np.arange(8), len(delays))}
    return table, 5.0 + 100.0 * table["disk_delay_s"] + 0.5 * table["batch"]


def test_a_disk_without_delay_can_be_fitted_and_asked_for() -> None:
    table, time_s = delayed([0.0, 0.1, 0.2, 0.4])
    made = EndToEndTime().fit(table, time_s).estimate({"disk_delay_s": [0.0], "batch": [16.0]})
    assert made.value[0] == pytest.approx(13.0)
    assert made.in_domain[0]


def test_zeros_among_the_longest_runs_alone_leave_the_inverse_out_too() -> None:
    """The interval comes from those runs, predicted from the rest, which has no 0."""
    table, _ = delayed([0.0, 0.1, 0.2, 0.4, 0.8])
    time_s = 1.0 / (0.01 + table["disk_delay_s"]) + 0.001 * table["batch"]
    made = EndToEndTime().fit(table, time_s).estimate({"disk_delay_s": [0.0], "batch": [16.0]})
    assert np.all(np.isfinite([made.value, made.low, made.high]))


def test_a_zero_in_one_job_leaves_the_inverse_out_of_all() -> None:
    table, time_s = delayed([0.0, 0.1, 0.2, 0.4])
    job = np.where(table["disk_delay_s"] > 0, "slow", "fast")
    model = EndToEndTime(by="job").fit({**table, "job": job}, np.where(job == "slow", 1.0 / (time_s - 4.0), time_s))
    made = model.estimate({"disk_delay_s": [0.0], "batch": [16.0], "job": ["slow"]})
    assert np.all(np.isfinite([made.value, made.low, made.high]))


def test_a_delay_of_zero_that_was_never_fitted_is_refused() -> None:
    table, time_s = delayed([0.05, 0.1, 0.2, 0.4])
    with pytest.raises(PredictionError, match="column 'disk_delay_s' is 0, which the fit had no row of"):
        EndToEndTime().fit(table, time_s).predict({"disk_delay_s": [0.0], "batch": [16.0]})
