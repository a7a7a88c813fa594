"""simulate(): traces in every form, forecasts, rounds, and jobs that do not fit."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from builders import cluster, finished, job, node, run, started
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.job.needs import Sharing
from gpuwise.service.offline.simulate import compare, simulate
from gpuwise.sim.traces.files import read_trace, write_trace

TRACE = "gen:gavel?jobs=40&rate=60&seed=2"
CLUSTER = "2x4:V100"


# -- the trace ---------------------------------------------------------------------------------------------------------


def test_a_trace_is_a_name_a_file_a_frame_or_an_object(tmp_path: Path) -> None:
    trace = read_trace(TRACE)
    path = tmp_path / "jobs.parquet"
    write_trace(trace, path)
    expected = simulate(TRACE, CLUSTER, "srtf")
    assert expected.trace == TRACE
    for given in (trace, path, str(path), trace.jobs):
        assert_frame_equal(simulate(given, CLUSTER, "srtf").to_frame(), expected.to_frame())


def test_job_specs_run_as_the_trace_they_came_from() -> None:
    frame = read_trace(TRACE).jobs
    picked = ("id", "submit_s", "duration_s", "gpus")
    specs = [job(id, duration_s, gpus, at) for id, at, duration_s, gpus in frame.select(picked).iter_rows()]
    expected = simulate(frame.select(picked), CLUSTER, "srtf").to_frame()
    assert_frame_equal(simulate(specs, CLUSTER, "srtf").to_frame(), expected)
    assert_frame_equal(simulate(specs[::-1], CLUSTER, "srtf").to_frame(), expected)


def test_job_specs_are_sorted_by_submission_and_keep_their_order_in_ties() -> None:
    jobs = [job("late", at=5.0), job("b", at=1.0), job("a", at=1.0), job("early", at=0.0)]
    result = run(jobs, "1x1:V100")
    assert result.to_frame()["id"].to_list() == ["early", "b", "a", "late"]
    assert started(result) == {"early": 0.0, "b": 10.0, "a": 20.0, "late": 30.0}


def test_no_jobs_and_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(GpuwiseError, match="no jobs"):
        simulate([], CLUSTER)
    with pytest.raises(GpuwiseError, match="'a' is used twice"):
        simulate([job("a"), job("a")], CLUSTER)


def typed(*gpu_types: str) -> pl.DataFrame:
    count = len(gpu_types)
    columns = {"submit_s": [0.0] * count, "duration_s": [10.0] * count, "gpus": [1] * count}
    return pl.DataFrame({**columns, "gpu_types": list(gpu_types)})


def test_types_in_a_trace_may_be_aliases() -> None:
    result = simulate(typed("Tesla V100", "t4|Tesla V100", "T4", ""), "1x1:V100+1x1:T4")
    nodes = dict(result.stays().select("id", "node").iter_rows())
    ids = result.to_frame()["id"].to_list()
    assert next(nodes[each] for each in ids) == "n0"
    assert nodes[ids[2]] == "n1"
    shapes = result.engine.state.jobs
    assert [shapes.shape_of(row).gpu_types for row in range(4)] == [("V100",), ("T4", "V100"), ("T4",), ()]


def test_a_type_in_a_trace_that_nobody_knows_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU type 'V10'; did you mean V100"):
        simulate(typed("V100|V10"), CLUSTER)


# -- what policies believe ---------------------------------------------------------------------------------------------


def test_a_forecast_error_is_about_beliefs_not_run_times() -> None:
    spread = simulate(TRACE, CLUSTER, "fifo", forecast_error=1.0)
    exact = simulate(TRACE, CLUSTER, "fifo")
    assert_frame_equal(spread.to_frame(), exact.to_frame())  # FIFO asks no forecast
    believed = spread.engine.state.jobs.columns()["duration_s"]
    true = exact.engine.state.jobs.columns()["duration_s"]
    assert (believed != true).all()
    assert {0.5 < ratio < 2 for ratio in believed / true} == {True, False}


def test_a_forecast_error_misleads_who_goes_by_run_times() -> None:
    ended = {
        (error, seed): simulate(TRACE, CLUSTER, "sjf", forecast_error=error, seed=seed).to_frame()["finish_s"].to_list()
        for error in (0.0, 2.0)
        for seed in (0, 1)
    }
    assert ended[0.0, 0] == ended[0.0, 1]
    assert ended[2.0, 0] != ended[0.0, 0]
    assert ended[2.0, 0] != ended[2.0, 1]
    again = simulate(TRACE, CLUSTER, "sjf", forecast_error=2.0, seed=1)
    assert again.to_frame()["finish_s"].to_list() == ended[2.0, 1]


def test_only_the_order_of_jobs_suffers_not_their_length() -> None:
    result = simulate(TRACE, CLUSTER, "sjf", forecast_error=2.0)
    lengths = dict(read_trace(TRACE).jobs.select("id", "duration_s").iter_rows())
    for id, begin_s, end_s in result.to_frame().select("id", "start_s", "finish_s").iter_rows():
        assert end_s - begin_s == pytest.approx(lengths[id])


@pytest.mark.parametrize("error", [-0.1, float("nan"), float("inf")])
def test_a_forecast_error_that_is_none_is_refused(error: float) -> None:
    with pytest.raises(GpuwiseError, match="forecast error"):
        simulate([job("a")], CLUSTER, forecast_error=error)


# -- rounds ------------------------------------------------------------------------------------------------------------


def test_a_policy_decides_at_multiples_of_the_round() -> None:
    # Two at a time on 4 GPUs: 12 s from the start of one round to within the next but one.
    jobs = [job("a", 12, 2, 0.0), job("b", 12, 2, 1.0), job("c", 12, 2, 7.0), job("d", 12, 2, 20.0)]
    result = run(jobs, "1x4:V100", round_s=10.0)
    assert started(result) == {"a": 0.0, "b": 10.0, "c": 20.0, "d": 30.0}
    assert finished(result) == {"a": 12.0, "b": 22.0, "c": 32.0, "d": 42.0}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_every_start_is_at_a_multiple_of_the_round(policy: str) -> None:
    result = simulate(TRACE, CLUSTER, policy, round_s=360.0)
    starts = result.stays()["start_s"].to_numpy()
    assert len(starts) >= 40
    assert abs(starts / 360 - (starts / 360).round()).max() < 1e-9
    assert simulate(TRACE, CLUSTER, policy).metrics.avg_jct_s != result.metrics.avg_jct_s


@pytest.mark.parametrize("round_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_round_that_never_ends_is_refused(round_s: float) -> None:
    with pytest.raises(GpuwiseError, match="a round of"):
        simulate([job("a")], CLUSTER, round_s=round_s)


# -- jobs that do not fit ----------------------------------------------------------------------------------------------


def test_a_job_larger_than_the_cluster_is_refused_by_name() -> None:
    jobs = [job("fits", gpus=8), job("wide", gpus=9), job("wider", gpus=90)]
    with pytest.raises(GpuwiseError, match=r"'wide' asks for 9 GPUs.*2x4:V100.*2 such jobs") as caught:
        simulate(jobs, CLUSTER)
    assert "oversized='drop'" in str(caught.value)


def test_what_a_job_asks_for_is_told_with_its_memory() -> None:
    with pytest.raises(GpuwiseError, match=r"'a' asks for 1 GPU with 90 GiB each.*\(1 such job in all\)"):
        simulate([job("a", gpu_memory_bytes=90 * 2**30)], CLUSTER)


def test_a_job_that_only_the_policy_has_no_room_for_is_told_so() -> None:
    with pytest.raises(GpuwiseError, match=r"empty under policy 'mig-static' .*; use another policy, or leave"):
        simulate([job("pair", gpus=2)], "1x2:A100", "mig-static")
    assert finished(run([job("pair", 10, gpus=2)], "1x2:A100", "fifo")) == {"pair": 10.0}
    with pytest.raises(GpuwiseError, match=r"1 GPU, as mig only, .* under policy 'fifo' .*; use a policy that"):
        simulate([job("slice", sharing=frozenset((Sharing.MIG,)))], "1x2:A100", "fifo")


def test_jobs_larger_than_the_cluster_can_be_left_out() -> None:
    jobs = [job("wide", 30, gpus=9), job("a", 10, gpus=8), job("elsewhere", gpu_types=("T4",)), job("b", 20, gpus=8)]
    result = run(jobs, CLUSTER, oversized="drop")
    assert finished(result) == {"a": 10.0, "b": 30.0}
    with pytest.raises(GpuwiseError, match="'wide'"):
        run(jobs[:1], CLUSTER, oversized="drop")


def test_memory_cpus_and_type_count_as_size() -> None:
    spec = cluster(node("n", 4, "V100", cpus=8, gpu_memory_bytes=16e9))
    jobs = [job("ok"), job("cpus", cpus=9), job("memory", gpu_memory_bytes=17e9), job("type", gpu_types=("T4",))]
    assert finished(run(jobs, spec, oversized="drop")) == {"ok": 10.0}
    for large in jobs[1:]:
        with pytest.raises(GpuwiseError, match=f"'{large.id}'"):
            run([large], spec)


def test_a_choice_that_is_none_is_refused() -> None:
    with pytest.raises(GpuwiseError, match="dorp"):
        simulate([job("a")], CLUSTER, oversized="dorp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "words"),
    [({"policy": "srft"}, "unknown policy 'srft'"), ({"placement": "bestfit"}, "unknown placement 'bestfit'")],
)
def test_names_that_are_none_are_refused(asked: dict[str, str], words: str) -> None:
    with pytest.raises(UnknownNameError, match=words):
        simulate([job("a")], CLUSTER, **asked)


def test_a_seed_below_zero_is_refused() -> None:
    with pytest.raises(GpuwiseError, match="seed"):
        simulate([job("a")], CLUSTER, seed=-1)


def test_a_result_names_the_placement_that_was_used():
    jobs = [job("a")]
    assert simulate(jobs, CLUSTER, "fifo").placement == "best-fit"
    assert simulate(jobs, CLUSTER, "tetris").placement == "tetris's own"
    assert simulate(jobs, CLUSTER, "tetris", placement="first-fit").placement == "first-fit"


# -- several policies --------------------------------------------------------------------------------------------------


def test_a_policy_that_cannot_run_a_trace_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,submit_s,duration_s,gpus,sharing\na,0,10,1,mig\n")
    found = compare(str(tmp_path / "jobs.csv"), "1x1:A100", ["fifo", "mig"], reading={})
    assert [result.policy for result in found.results] == ["mig"]
    assert [str(error)[:13] for error in found.refused] == ["fifo: job 'a'"]


def test_names_are_checked_before_the_trace_is_read() -> None:
    with pytest.raises(UnknownNameError, match="policy 'fofi'"):
        compare("nowhere.csv", CLUSTER, ["fifo", "fofi"], reading={})
