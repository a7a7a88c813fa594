"""Speed over workers, servers, GPUs and nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpuwise.predict.base import PredictionError
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data import elasticflow, gavel, pollux
from gpuwise.predict.fitting.recipes.scaling import holdouts
from gpuwise.predict.fitting.scores import score
from gpuwise.predict.scaling.data_parallel import AllReduceScaling, TypicalScaling
from gpuwise.predict.scaling.parameter_servers import ParameterServerSpeed

SIZES = [(servers, workers) for servers in (1, 2, 4, 6) for workers in (1, 2, 4, 8)]
SERVERS, WORKERS = np.array(SIZES, dtype=float).T


def sync_speed(servers: np.ndarray, workers: np.ndarray, batch: float = 128.0) -> np.ndarray:
    """1 / (0.01·M/w + 0.1 + 0.05·w/p + 0.002·w + 0.01·p)"""
    return 1.0 / (0.01 * batch / workers + 0.1 + 0.05 * workers / servers + 0.002 * workers + 0.01 * servers)


def async_speed(servers: np.ndarray, workers: np.ndarray) -> np.ndarray:
    return workers / (0.5 + 0.2 * workers / servers + 0.01 * workers + 0.02 * servers)


def test_the_synchronous_model_is_recovered() -> None:
    model = ParameterServerSpeed("sync", global_batch=128.0)
    model.fit({"servers": SERVERS, "workers": WORKERS}, sync_speed(SERVERS, WORKERS))
    assert model.theta_ == pytest.approx([0.01, 0.1, 0.05, 0.002, 0.01], rel=1e-3)
    assert model(8, 16) == pytest.approx(sync_speed(np.array(8.0), np.array(16.0)), rel=1e-3)


def test_the_asynchronous_model_is_recovered() -> None:
    model = ParameterServerSpeed("async").fit({"servers": SERVERS, "workers": WORKERS}, async_speed(SERVERS, WORKERS))
    assert model.theta_ == pytest.approx([0.5, 0.2, 0.01, 0.02], rel=1e-3)


def test_each_observation_refits_and_noise_averages_out() -> None:
    rng = np.random.default_rng(2)
    model = ParameterServerSpeed("sync", global_batch=128.0)
    errors = []
    for number in range(60):
        servers, workers = SERVERS[number % 16], WORKERS[number % 16]
        model.observe(servers, workers, sync_speed(servers, workers) * np.exp(0.05 * rng.standard_normal()))
        errors.append(np.mean(np.abs(model(SERVERS, WORKERS) / sync_speed(SERVERS, WORKERS) - 1)))
    assert errors[-1] < 0.03
    assert errors[-1] < errors[3]


def test_old_observations_are_forgotten_beyond_what_is_kept() -> None:
    model = ParameterServerSpeed("async", keep=16)
    model.observe(SERVERS, WORKERS, async_speed(SERVERS, WORKERS))
    model.observe(SERVERS, WORKERS, 2.0 * async_speed(SERVERS, WORKERS))  # the cluster has become twice as fast
    assert model.rows_.shape == (3, 16)
    assert model(2, 4) == pytest.approx(2.0 * async_speed(np.array(2.0), np.array(4.0)), rel=1e-3)


def test_few_sizes_give_a_wide_interval() -> None:
    few = ParameterServerSpeed().observe([1, 1], [1, 2], [1.0, 1.8])
    made = few.estimate({"servers": [1.0], "workers": [2.0]})
    assert made.high[0] / made.low[0] > 3.0


def test_parameter_servers_keep_the_contract() -> None:
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(len(SERVERS)))
    table = {"servers": SERVERS, "workers": WORKERS}
    check_predictor(ParameterServerSpeed("async"), table, async_speed(SERVERS, WORKERS) * noise)


def test_an_unknown_mode_and_a_speed_of_zero_are_refused() -> None:
    with pytest.raises(PredictionError, match="'ring'; it is one of sync, async"):
        ParameterServerSpeed("ring").fit({"servers": [1], "workers": [1]}, [1.0])
    with pytest.raises(PredictionError, match="steps_per_s must be above 0"):
        ParameterServerSpeed().observe(1, 1, 0.0)


def job() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Up to four GPUs on a node: cheap; several nodes: a cost of the network."""
    places = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (8, 2), (4, 4), (8, 4), (16, 4)]
    rows = np.array([(batch, *place) for place in places for batch in (8, 16, 32, 64)], dtype=float)
    table = dict(zip(("batch", "gpus", "nodes"), rows.T, strict=True))
    step_s = 0.02 + 0.002 * table["batch"] + 0.004 * np.log2(table["gpus"]) + (table["nodes"] > 1) * 0.05
    return table, step_s * np.exp(0.01 * np.random.default_rng(7).standard_normal(len(step_s)))


def test_all_reduce_knows_one_node_from_many() -> None:
    table, step_s = job()
    model = AllReduceScaling().fit(table, step_s)
    near, far = model(4, [1, 4], 16)
    assert 1 / near == pytest.approx(0.02 + 0.032 + 0.008, rel=0.05)
    assert 1 / far == pytest.approx(0.02 + 0.032 + 0.008 + 0.05, rel=0.05)


def test_a_called_model_is_vectorised_and_remembers() -> None:
    table, step_s = job()
    model = AllReduceScaling().fit(table, step_s)
    speeds = model(np.array([[1], [2], [4]]), 1, np.array([8.0, 16.0, 64.0]))
    assert speeds.shape == (3, 3)
    assert np.allclose(
        speeds.ravel(),
        1 / model.predict({"batch": [8, 16, 64] * 3, "gpus": [1] * 3 + [2] * 3 + [4] * 3, "nodes": [1] * 9}),
    )
    model.surface_ = None  # what was asked before is looked up, not computed
    assert np.array_equal(model(np.array([4, 1]), 1, 8.0), speeds[[2, 0], 0])


def test_speedup_is_one_for_one_gpu_and_less_than_the_number_of_gpus() -> None:
    table, step_s = job()
    model = AllReduceScaling().fit(table, step_s)
    speedup = model.speedup([1, 2, 4], 1, 32.0)
    assert speedup[0] == pytest.approx(1.0)
    assert np.all(speedup <= np.array([1.0, 2.0, 4.0]) * 1.02)
    assert np.all(np.diff(speedup) > 0)


def test_surfaces_keep_the_contract() -> None:
    table, step_s = job()
    check_predictor(AllReduceScaling(), table, step_s)


def test_typical_scaling_keeps_the_contract() -> None:
    table, step_s = job()
    solo = {batch: 0.02 + 0.002 * batch for batch in table["batch"]}
    table["step_time_s"] = np.array([solo[batch] for batch in table["batch"]])
    table["model"] = np.array([f"model{number % 5}" for number in range(len(step_s))])
    check_predictor(TypicalScaling(), table, step_s)


def test_one_gpu_takes_as_long_as_it_was_told() -> None:
    model = TypicalScaling(folds=2).fit(
        {
            "step_time_s": [0.1, 0.1, 0.2, 0.2],
            "gpus": [2, 4, 2, 4],
            "nodes": [1, 2, 1, 2],
            "model": ["a", "a", "b", "b"],
        },
        [0.12, 0.2, 0.23, 0.34],
    )
    assert model.predict({"step_time_s": [0.5], "gpus": [1], "nodes": [1]})[0] == pytest.approx(0.5)


@pytest.mark.parametrize(("name", "bad"), [("gpus", 0.0), ("nodes", float("nan")), ("step_time_s", float("inf"))])
def test_typical_scaling_refuses_sizes_that_cannot_be(name: str, bad: float) -> None:
    table = {"step_time_s": [0.1, 0.1, 0.2], "gpus": [2, 4, 2], "nodes": [1, 2, 1], "model": ["a", "a", "b"]}
    model = TypicalScaling(folds=2).fit(table, [0.12, 0.2, 0.23])
    for ask in (model.predict, lambda spoiled: TypicalScaling().fit(spoiled, [0.12, 0.2, 0.23])):
        with pytest.raises(PredictionError, match=f"column '{name}' is {bad:g} in row 1"):
            ask({**table, name: [1.0, bad, 1.0]})


def test_typical_scaling_needs_rows_of_two_models_and_times_above_zero() -> None:
    table = {"step_time_s": [0.1, 0.2], "gpus": [2, 4], "nodes": [1, 1], "model": ["a", "b"]}
    with pytest.raises(PredictionError, match="0, 0, 0, 0 rows"):
        TypicalScaling().fit({name: [] for name in table}, [])
    with pytest.raises(PredictionError, match="1 models; at least two"):
        TypicalScaling().fit({**table, "model": ["a", "a"]}, [0.2, 0.3])
    with pytest.raises(PredictionError, match="measured step time is nan in row 1"):
        TypicalScaling().fit(table, [0.2, float("nan")])


def test_surfaces_refuse_sizes_that_cannot_be() -> None:
    table, step_s = job()
    model = AllReduceScaling().fit(table, step_s)
    with pytest.raises(PredictionError, match="column 'gpus' is 0 in row 0; it must be finite and at least 1"):
        model.predict({"batch": [8], "gpus": [0], "nodes": [1]})
    with pytest.raises(PredictionError, match="nodes is 0"):
        model(2, 0, 8)
    with pytest.raises(PredictionError, match="column 'batch' is nan in row 0"):
        AllReduceScaling().fit({**table, "batch": np.full(len(step_s), np.nan)}, step_s)


def test_gavel_is_read_as_step_times(data_dir: Path) -> None:
    """ResNet-18, batch 16, K80: 8.758 steps/s of two workers together, so that a step takes 2 / 8.758 s."""
    rows = gavel.isolated(data_dir)
    at = (rows["model"] == "ResNet-18") & (rows["gpu"] == "k80") & (rows["batch"] == 16)
    two = at & (rows["gpus"] == 2) & (rows["nodes"] == 1)
    assert rows["step_time_s"][two] == pytest.approx([2 / 8.758230831811566])
    assert sorted(rows["nodes"][at]) == [1, 1, 1, 1, 2, 4, 8]
    assert np.all(rows["step_time_s"] > 0)


def test_elasticflow_splits_the_global_batch(data_dir: Path) -> None:
    rows = elasticflow.steps(data_dir)
    at = (rows["model"] == "vgg16") & (rows["global_batch"] == 256) & (rows["gpus"] == 64)
    assert rows["batch"][at].tolist() == [4.0]
    assert rows["nodes"][at].tolist() == [8.0]
    assert np.all(np.isfinite(rows["step_time_s"]))


def test_pollux_placements_are_gpus_by_node(data_dir: Path) -> None:
    rows = pollux.steps(data_dir)
    at = rows["placement"] == "1234"
    assert set(rows["gpus"][at]) == {10.0}
    assert set(rows["nodes"][at]) == {4.0}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PredictionError, match=r"gavel/simulation_throughputs\.json"):
        gavel.isolated(tmp_path)


def test_placements_left_out_are_predicted(data_dir: Path) -> None:
    found = {each.name: score(each.measured, each.estimates) for each in holdouts(data_dir)}
    assert found["scaling-placements"].mape < 0.09
    assert 0.85 <= found["scaling-placements"].coverage <= 0.95
    assert 0.85 <= found["scaling-model-unseen"].coverage <= 0.95
