"""Measurements of others' own: a folder that lacks data sets, files, rows or names that gpuwise knows."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gpuwise.predict import registry
from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data import elasticflow, gavel, pollux, torchvision_bench, zeus
from gpuwise.predict.fitting.data.gavel import colocated_pairs
from gpuwise.predict.fitting.data.miso import mig_times
from gpuwise.predict.fitting.data.tables import on_known_gpus, read_available, read_table
from gpuwise.predict.fitting.recipes import recipes
from gpuwise.service.offline import fitting

HEAD = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"
JOBS = ("ResNet-18", "LM", "Transformer", "A3C")


def written(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def with_zeus(folder: Path, *gpus: str) -> Path:
    """Epochs that take 100 s and 10 s·1024/batch, half as long on each further GPU."""
    for number, gpu in enumerate(gpus):
        rows = [
            f"cifar,{network},{batch},adam,300,{(100 + 10240 / batch) / 2**number},250"
            for network in ("alpha", "beta", "gamma")
            for batch in (8, 16, 32, 64, 128, 256)
        ]
        written(folder / "zeus" / f"summary_power_{gpu}.csv", HEAD, *rows)
    return folder


def with_pairs(folder: Path, *gpus: str) -> Path:
    """Jobs of 10, 20, 30 and 40 steps a second that run at 0.6 of that beside each other."""
    names = [f"('{job} (batch size {batch})', 1)" for job in JOBS for batch in (16, 32)]
    alone = {name: 10.0 * (1 + number) for number, name in enumerate(names)}
    table = {one: {"null": alone[one]} | {two: [0.6 * alone[one], 0.6 * alone[two]] for two in names} for one in names}
    written(folder / "gavel" / "simulation_throughputs.json", json.dumps(dict.fromkeys(gpus, table)))
    return folder


def with_slices(folder: Path, *rows: str) -> Path:
    head = "compute_slices,memory_gb,model,batch_size,n_iterations,median_iter_s,mean_iter_s,std_iter_s"
    measured = [
        f"{slices},{memory},{model},8,100,{0.7 / slices},{0.7 / slices},0.01"
        for model in ("bert", "resnet", "gnn")
        for slices, memory in ((1, 5), (2, 10), (3, 20), (7, 40))
    ]
    written(folder / "miso" / "mig_iteration_time_summary.csv", head, *measured, *rows)
    return folder


def test_rows_without_a_usable_number_are_left_out_and_counted_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "times.csv", "model,time_s,more", "a,1.5,x", "b,oops,x", "c,,x", "d,-1,x", "e", "f,inf,x")
    table = read_table(path, ("time_s",), names=("model",))
    assert table.rows() == [("a", 1.5)]
    assert f"5 of 6 rows of {path}" in caplog.text


def test_a_table_without_a_column_says_which_and_what_it_has(tmp_path: Path) -> None:
    path = written(tmp_path / "times.csv", "model,seconds", "a,1.5")
    with pytest.raises(PredictionError, match="no column time_s; it has model, seconds"):
        read_table(path, ("time_s",), names=("model",))


@pytest.mark.parametrize("reader", [zeus.epochs, zeus.curves, gavel.isolated, elasticflow.steps, mig_times])
def test_a_data_set_that_is_not_there_is_an_error_with_its_path(reader: object, tmp_path: Path) -> None:
    assert callable(reader)
    with pytest.raises(PredictionError, match=str(tmp_path)):
        reader(tmp_path)


def test_of_several_data_sets_those_there_are_read_and_the_others_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (table,) = read_available((gavel.isolated, zeus.epochs), with_zeus(tmp_path, "a40"))
    assert set(table["gpu"]) == {"a40"}
    assert f"left out: cannot read {tmp_path}/gavel" in caplog.text


def test_the_batch_of_steps_comes_from_the_name_of_their_file(tmp_path: Path) -> None:
    head = "gpu,source_dir,num_gpus,dtype,mode,model,n,median_ms,mean_ms,std_ms"
    for batch in (12, 32):
        path = tmp_path / torchvision_bench.FOLDER / f"step_time_ms_bs{batch}.csv"
        written(path, head, f"H100,h,1,float,train,resnet50,20,{batch},1,1")
    table = torchvision_bench.steps(tmp_path)
    assert dict(zip(table["batch"], table["step_time_s"], strict=True)) == {12: 0.012, 32: 0.032}


def test_gpus_that_nobody_knows_are_left_out_of_what_needs_their_rates(caplog: pytest.LogCaptureFixture) -> None:
    kept = on_known_gpus({"gpu": ["H100", "FooGPU", "L4"], "time_s": [1.0, 2.0, 3.0]})
    assert kept["time_s"].tolist() == [1.0, 3.0]
    assert "FooGPU" in caplog.text
    with pytest.raises(PredictionError, match="BarGPU"):
        on_known_gpus({"gpu": ["BarGPU"], "time_s": [1.0]})


def test_a_rate_that_is_no_number_is_as_good_as_none(tmp_path: Path) -> None:
    rates = {"('LM (batch size 5)', 1)": {"null": "oops"}, "('LM (batch size 10)', 1)": {"null": 4.0}}
    written(tmp_path / "gavel" / "simulation_throughputs.json", json.dumps({"h100": rates}))
    assert gavel.isolated(tmp_path)["batch"].tolist() == [10.0]
    with pytest.raises(PredictionError, match="no two jobs shared a GPU"):
        colocated_pairs(tmp_path)


def test_slices_that_the_gpu_does_not_have_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = mig_times(with_slices(tmp_path, "4,17,bert,8,100,0.2,0.2,0.01"))
    assert set(rows["profile"]) == {"1g.5gb", "2g.10gb", "3g.20gb"}
    assert "4g.17gb" in caplog.text
    assert np.all(np.isnan(rows["gpu_util_frac"]))  # there is no table of it


def test_what_can_be_scored_is_scored_and_the_rest_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = {each.holdout.name: each for each in fitting.evaluate(["endtoend"], with_zeus(tmp_path, "a40"))}
    assert {"endtoend-batch", "endtoend-batch-none-larger"} <= found.keys()
    assert not any("gpus" in name for name in found)
    assert found["endtoend-batch"].holdout.data == ("zeus",)
    assert f"{tmp_path}/gavel" in caplog.text
    assert all(math.isfinite(each.scores.mape) for each in found.values())


def test_gpus_without_data_of_their_own_are_scored_without_nan(tmp_path: Path) -> None:
    found = list(fitting.evaluate(["interference"], with_pairs(tmp_path, "h100", "foogpu")))
    assert {"interference-pair-unseen", "interference-model-unseen"} <= {each.holdout.name for each in found}
    for each in found:
        assert each.scores.rows > 0
        assert all(math.isfinite(each.row()[name]) for name in ("mape", "mae", "coverage", "width"))


def test_a_predictor_without_any_data_is_told_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert list(fitting.evaluate(["mig", "layer_time"], tmp_path)) == []
    assert "predictor mig" in caplog.text
    assert "predictor layer_time" in caplog.text


def test_one_model_alone_cannot_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = with_slices(tmp_path)
    path = folder / "miso" / "mig_iteration_time_summary.csv"
    written(path, *(line for line in path.read_text().splitlines() if "resnet" not in line and "gnn" not in line))
    assert list(fitting.evaluate(["mig"], folder)) == []
    assert "all data are of bert" in caplog.text


@pytest.mark.parametrize("name", ["interference", "mig", "endtoend"])
def test_the_shipped_predictors_are_asked_as_they_are(name: str, tmp_path: Path) -> None:
    with_slices(with_zeus(with_pairs(tmp_path, "h100", "foogpu"), "a40"))
    found = list(fitting.evaluate_in_use([name], tmp_path))
    assert found
    for each in found:
        assert each.holdout.name.startswith(name)
        assert each.scores.rows > 0
        assert math.isfinite(each.scores.mape)


def test_the_shipped_predictors_of_memory_and_utilization_are_asked_as_they_are(tmp_path: Path) -> None:
    head = "model,batch_size,sm_util_pct,mem_bw_util_pct,memory_mb"
    written(tmp_path / "miso" / "utilization_summary_a100.csv", head, "dummy,8,20,5,3000", "gnn,16,30,5,3000")
    found = [each.scores for each in fitting.evaluate_in_use(["memory", "utilization"], tmp_path)]
    assert [each.rows for each in found] == [2, 2]
    assert all(math.isfinite(each.mape) for each in found)


def test_asking_a_shipped_predictor_leaves_it_as_it_was(tmp_path: Path) -> None:
    before = registry.load("endtoend").predictor.to_document()
    list(fitting.evaluate_in_use(["endtoend"], with_zeus(tmp_path, "a40")))
    assert registry.load("endtoend").predictor.to_document() == before


def test_a_fit_uses_the_data_sets_there_are_and_names_only_those(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fitted = fitting.fit(recipes()["endtoend"], with_zeus(tmp_path, "a40", "h100"), errors=False)
    assert [(source.name, source.licence) for source in fitted.data] == [("zeus", "")]
    assert "SOURCE.md" in caplog.text


def test_a_job_that_was_only_scaled_or_only_placed_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    traces = tmp_path / "pollux" / "traces"
    written(traces / "a" / "placements.csv", "placement,local_bsz,step_time,sync_time", "44,8,0.5,0.1", "4x,8,0.5,0.1")
    written(traces / "b" / "scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time", "3,12,8,0.7,0.1")
    table = pollux.steps(tmp_path)
    assert list(zip(table["model"], table["gpus"], table["nodes"], strict=True)) == [("a", 8.0, 2.0), ("b", 12.0, 3.0)]
    assert "'4x'" in caplog.text


def test_a_job_without_its_number_of_gpus_is_an_error_with_an_example(tmp_path: Path) -> None:
    written(tmp_path / "gavel" / "simulation_throughputs.json", json.dumps({"h100": {"LM": {"null": 4.0}}}))
    for reader in (gavel.isolated, colocated_pairs):
        with pytest.raises(PredictionError, match="'LM'; one like"):
            reader(tmp_path)
