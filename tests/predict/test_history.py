"""Time at sizes that a job has not run at, from its history and from other jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpuwise.predict.base import PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.recipes import end_to_end as recipe
from gpuwise.predict.fitting.scores import score
from gpuwise.predict.scaling.backtests import largest
from gpuwise.predict.scaling.history import HistoryTime
from gpuwise.predict.scaling.surface import Shape, StepSurface

Table = dict[str, np.ndarray]


def grid(batches: list[float], places: list[tuple[int, int]]) -> Table:
    rows = [(batch, gpus, nodes) for gpus, nodes in places for batch in batches]
    return dict(zip(("batch", "gpus", "nodes"), np.array(rows, dtype=float).T, strict=True))


def added(rows: Table, fixed_s: float, sample_s: float, doubling_s: float) -> np.ndarray:
    """Step time as a sum: a constant, work, and a cost for each doubling of GPUs."""
    return fixed_s + sample_s * rows["batch"] + doubling_s * np.log2(rows["gpus"])


def several_jobs() -> Table:
    parts = []
    for number in range(6):
        rows = grid([8, 16, 32, 64], [(1, 1), (2, 1), (4, 1), (8, 1)])
        time_s = added(rows, 0.01 * (number + 1), 0.001 * (number + 1), 0.005)
        noise = np.exp(0.02 * np.random.default_rng(number).standard_normal(len(time_s)))
        parts.append({**rows, "job": np.full(len(time_s), f"job{number}"), "time_s": time_s * noise})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_a_sum_of_costs_is_recovered_at_twice_the_batch_and_twice_the_gpus() -> None:
    rows = grid([8, 16, 32, 64], [(1, 1), (2, 1), (4, 1)])
    surface = StepSurface(Shape()).fit(rows["batch"], rows["gpus"], rows["nodes"], added(rows, 0.02, 0.001, 0.01))
    asked = grid([128], [(8, 1)])
    assert surface(asked["batch"], asked["gpus"], asked["nodes"]) == pytest.approx(
        added(asked, 0.02, 0.001, 0.01), rel=0.06
    )


def test_synchronization_hides_behind_computation_when_costs_overlap() -> None:
    """C(b) = 0.001·b on one GPU; over the network max(C, 0.05): at batch 200 nothing of it is left to see."""
    rows = grid([10, 20, 40, 80], [(1, 1), (4, 4)])
    compute_s = 0.001 * rows["batch"]
    step_s = np.where(rows["nodes"] > 1, np.maximum(compute_s, 0.05), compute_s)
    fit = (rows["batch"], rows["gpus"], rows["nodes"], step_s)
    asked = (np.array([200.0]), np.array([4.0]), np.array([4.0]))
    hidden = StepSurface(Shape(8.0, False, 0.0, True)).fit(*fit)(*asked)[0]
    summed = StepSurface(Shape(1.0, False, 0.0, True)).fit(*fit)(*asked)[0]
    assert hidden == pytest.approx(0.2, rel=0.02)
    assert abs(summed - 0.2) > abs(hidden - 0.2)


def test_no_cost_is_negative_so_more_work_never_takes_less_time() -> None:
    rng = np.random.default_rng(5)
    rows = grid([8, 16, 32], [(1, 1), (2, 1), (4, 2)])
    step_s = rng.uniform(0.1, 0.2, len(rows["batch"]))
    surface = StepSurface(Shape(2.0, True)).fit(rows["batch"], rows["gpus"], rows["nodes"], step_s)
    batch = np.linspace(8, 512, 50)
    assert np.all(np.diff(surface.smooth(batch, np.full(50, 4.0), np.full(50, 2.0))) >= -1e-12)


def test_the_largest_batches_are_left_out_for_each_number_of_gpus() -> None:
    rows = np.array([[8, 1, 1], [16, 1, 1], [32, 1, 1], [64, 1, 1], [4, 2, 1], [8, 2, 1], [16, 2, 1]], dtype=float)
    out, keep = largest(rows, "batch")
    assert rows[out][:, :2].tolist() == [[64, 1], [16, 2]]  # above 64 / 2 on one GPU, above 16 / 2 on two
    assert keep.tolist() == (~out).tolist()


def test_a_deeper_back_test_hides_what_is_larger() -> None:
    rows = np.array([[8, gpus, 1] for gpus in (1, 2, 4, 8)], dtype=float)
    out, keep = largest(rows, "gpus", depth=2)
    assert rows[out][:, 1].tolist() == [4]
    assert rows[keep][:, 1].tolist() == [1, 2]


def test_batch_and_gpus_are_extrapolated_within_the_interval() -> None:
    rows = several_jobs()
    cut = (rows["job"] == "job3") & ((rows["gpus"] > 4) | (rows["batch"] > 32))
    model = HistoryTime().fit(rows_where(rows, ~cut), rows["time_s"][~cut])
    made = model.estimate(rows_where(rows, cut))
    measured = rows["time_s"][cut]
    assert np.mean(np.abs(made.value / measured - 1)) < 0.06
    assert np.mean((made.low <= measured) & (measured <= made.high)) > 0.7


def test_time_is_in_proportion_to_iterations() -> None:
    rows = several_jobs()
    model = HistoryTime().fit(rows, rows["time_s"])
    asked = {"job": ["job1", "job1"], "batch": [128.0, 128.0], "iterations": [1.0, 1000.0]}
    once, often = model.estimate(asked).high
    assert often == pytest.approx(1000 * once)


def test_what_happened_to_other_jobs_of_the_cluster_is_learned_from() -> None:
    """Every job of this cluster gets 50 % slower on 8 GPUs, as if its nodes had two switches."""
    rows = several_jobs()
    rows["time_s"] = rows["time_s"] * np.where(rows["gpus"] == 8, 1.5, 1.0)
    cut = (rows["job"] == "job0") & (rows["gpus"] == 8)
    kept, measured = rows_where(rows, ~cut), rows["time_s"][cut]
    errors = {
        borrow: np.mean(
            np.abs(HistoryTime(borrow).fit(kept, kept["time_s"]).predict(rows_where(rows, cut)) / measured - 1)
        )
        for borrow in (True, False)
    }
    assert errors[True] < 0.5 * errors[False]


def test_a_new_job_is_added_without_fitting_the_others_again() -> None:
    rows = several_jobs()
    new = rows["job"] == "job5"
    model = HistoryTime().fit(rows_where(rows, ~new), rows["time_s"][~new])
    before = model.predict(rows_where(rows, ~new))
    model.partial_fit(rows_where(rows, new), rows["time_s"][new])
    assert model.predict({"job": ["job5"], "batch": [128.0]})[0] > 0
    assert np.allclose(model.predict(rows_where(rows, ~new)), before, rtol=0.2)


def test_without_forgets_jobs() -> None:
    rows = several_jobs()
    model = HistoryTime().fit(rows, rows["time_s"]).without({"job2"})
    with pytest.raises(PredictionError, match="'job2' has no history"):
        model.predict({"job": ["job2"], "batch": [8.0]})


def test_a_model_left_out_is_in_no_interval_that_it_is_judged_by() -> None:
    jobs = several_jobs()  # the largest batch on one GPU is between those on two, which have memory for more
    rows = {name: column[jobs["batch"] <= 32.0 * jobs["gpus"]] for name, column in jobs.items()}
    rows["model"] = rows["job"]
    made, asked = recipe.by_model(rows, "batch")
    for job in np.unique(rows["job"]):
        out, others = rows["job"][asked] == job, rows["job"] != job
        keep = recipe.split(rows, "batch").keep & ~others
        fresh = HistoryTime().fit(rows_where(rows, others), rows["time_s"][others])
        fresh.partial_fit(rows_where(rows, keep), rows["time_s"][keep])
        alone = fresh.estimate(rows_where(rows, rows["job"] == job))
        place = np.searchsorted(np.flatnonzero(~others), asked[out])
        assert made.high[out] == pytest.approx(alone.high[place], rel=1e-9)


def test_more_than_twice_the_largest_size_is_outside_of_what_is_known() -> None:
    rows = several_jobs()
    model = HistoryTime().fit(rows, rows["time_s"])
    asked = {"job": ["job1"] * 3, "batch": [128.0, 130.0, 64.0], "gpus": [8.0, 8.0, 32.0]}
    assert model.estimate(asked).in_domain.tolist() == [True, False, False]


def test_it_keeps_the_contract() -> None:
    rows = several_jobs()
    check_predictor(HistoryTime(), rows, rows["time_s"])


def test_a_batch_of_zero_is_refused_with_its_value() -> None:
    rows = several_jobs()
    model = HistoryTime().fit(rows, rows["time_s"])
    with pytest.raises(PredictionError, match="batch of 0; it must be above 0"):
        model.predict({"job": ["job1"], "batch": [0.0]})


def test_one_measurement_gives_a_factor_of_two_and_is_outside_of_what_is_known() -> None:
    model = HistoryTime().fit({"job": ["new"], "batch": [8.0]}, [1.0])
    made = model.estimate({"job": ["new"] * 2, "batch": [8.0, 16.0]})
    assert made.high / made.value == pytest.approx([2.0, 2.0])
    assert made.value / made.low == pytest.approx([2.0, 2.0])
    assert not made.in_domain.any()


def test_a_job_with_one_size_is_not_sure_because_others_were_tested() -> None:
    rows = several_jobs()
    model = HistoryTime().fit(rows, rows["time_s"]).partial_fit({"job": ["new"], "batch": [8.0]}, [1.0])
    made = model.estimate({"job": ["new", "job1"], "batch": [16.0, 16.0]})
    assert made.high[0] / made.value[0] == pytest.approx(2.0)
    assert made.high[1] / made.value[1] < 1.5
    assert made.in_domain.tolist() == [False, True]


def test_few_back_tests_do_not_make_an_interval() -> None:
    model = HistoryTime().fit({"job": ["new"] * 4, "batch": [8.0, 16.0, 32.0, 64.0]}, [1.0, 2.0, 4.0, 8.0])
    made = model.estimate({"job": ["new"], "batch": [128.0]})
    assert made.high[0] / made.low[0] == pytest.approx(4.0)
    assert not made.in_domain[0]


@pytest.mark.parametrize("ratio", [3.0, 30.0])
def test_measurements_at_one_size_that_differ_are_both_in_the_interval(ratio: float) -> None:
    alone = HistoryTime().fit({"job": ["new"] * 2, "batch": [8.0, 8.0]}, [1.0, ratio])
    rows = several_jobs()
    beside = HistoryTime().fit(rows, rows["time_s"])
    beside.partial_fit({"job": ["new"] * 4, "batch": [8.0, 8.0, 16.0, 32.0]}, [1.0, ratio, 3.0, 6.0])
    for model in (alone, beside):
        made = model.estimate({"job": ["new"], "batch": [8.0]})
        assert made.low[0] <= 1.0 < ratio <= made.high[0]


@pytest.mark.parametrize("bad", [0.0, float("nan")])
def test_iterations_that_cannot_be_are_refused(bad: float) -> None:
    with pytest.raises(PredictionError, match=f"column 'iterations' is {bad:g} in row 0"):
        HistoryTime().fit({"job": ["new"], "batch": [8.0], "iterations": [bad]}, [1.0])


def test_zeus_and_gavel_batches_are_extrapolated(data_dir: Path) -> None:
    for read, most in ((recipe.zeus_times, 0.07), (recipe.gavel_times, 0.13)):
        rows = read(data_dir)
        made, asked = recipe.by_model(rows, "batch", (1,))
        scores = score(rows["time_s"][asked], made)
        assert scores.mape < most
        assert scores.coverage >= 0.85


def test_elasticflow_and_gavel_gpus_are_extrapolated(data_dir: Path) -> None:
    for read, most in ((recipe.elasticflow_times, 0.13), (recipe.gavel_times, 0.17)):
        rows = read(data_dir)
        made, asked = recipe.by_model(rows, "gpus", recipe.DOUBLINGS)
        scores = score(rows["time_s"][asked], made)
        assert scores.mape < most
        assert scores.coverage >= 0.85


def test_rows_left_out_are_larger_than_those_kept(data_dir: Path) -> None:
    rows = recipe.gavel_times(data_dir)
    cut = recipe.split(rows, "gpus")
    assert cut.out.any()
    assert not np.any(cut.out & cut.keep)
    for job in np.unique(rows["job"][cut.out]):
        mine = rows["job"] == job
        assert rows["gpus"][mine & cut.out].min() > rows["gpus"][mine & cut.keep].max()


def test_the_shipped_predictor_is_the_same_each_time(data_dir: Path) -> None:
    one, two = recipe.fit(data_dir).to_document(), recipe.fit(data_dir).to_document()
    assert one == two


def two_clusters() -> Table:
    """Twelve jobs that grow smoothly, and six on another cluster that jump up or down beyond 8 GPUs, unforeseen."""
    parts = []
    for number in range(18):
        rows = grid([8, 16, 32], [(1, 1), (2, 1), (4, 1), (8, 1), (16, 2)])
        jumps = number >= 12
        jump = np.where((rows["gpus"] > 8) & jumps, np.exp(0.5 * (-1) ** number), 1.0)
        noise = np.exp(0.01 * np.random.default_rng(number).standard_normal(len(jump)))
        time_s = added(rows, 0.01, 0.001 * (number + 1), 0.001) * jump * noise
        names = {"job": f"job{number}", "cluster": "jumpy" if jumps else "calm"}
        parts.append({**rows, **{name: np.full(len(jump), each) for name, each in names.items()}, "time_s": time_s})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_the_interval_is_wide_where_other_jobs_of_the_cluster_were_surprised() -> None:
    rows = two_clusters()
    for job in ("job12", "job13"):  # one jumps up, one down
        mine = rows["job"] == job
        known = HistoryTime().fit(rows_where(rows, ~mine), rows["time_s"][~mine])
        seen, out = mine & (rows["gpus"] <= 8), mine & (rows["gpus"] == 16)
        known.partial_fit(rows_where(rows, seen), rows["time_s"][seen])
        made = known.estimate(rows_where(rows, out))
        assert np.all((rows["time_s"][out] >= made.low) & (rows["time_s"][out] <= made.high))


def test_the_interval_grows_with_each_further_doubling_of_gpus() -> None:
    rows = several_jobs()
    known = HistoryTime().fit(rows, rows["time_s"])
    made = known.estimate({**grid([32], [(12, 2), (16, 2), (32, 4), (64, 8)]), "job": ["job0"] * 4})
    width = np.log(made.high / made.low)
    assert width[1] == pytest.approx(width[0])
    assert width[2] == pytest.approx(2 * width[1])
    assert width[3] == pytest.approx(3 * width[1])
