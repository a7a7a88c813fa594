"""Forecasts of live jobs: where they come from, and that those who wait learn from those who ended."""

from __future__ import annotations

from dataclasses import replace

from world import Bench, request

from gpuwise.core.job.needs import Forecast, Source
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import Store
from gpuwise.live.feasibility import Feasibility
from gpuwise.live.forecasts import NEWS_FRAC, adopt

SWEEP = JobRequest(command=("train",), predicted_s=100.0, array=(0, 1, 2))


def test_the_tasks_of_an_array_learn_from_those_before_them(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    first, second, third = bench.submit(SWEEP)
    bench.controller.turn()
    state = bench.controller.engine.state
    state.jobs.duration_s[state.jobs.row_of[first]] = 20.0  # how long it really takes in this world
    bench.world.begin_again()
    while store.job(first).status != "succeeded":
        bench.controller.turn()
    for waiting in (second, third):
        record = store.job(waiting)
        assert (record.duration_s, record.duration_source) == (20.0, "history")
        assert record.duration_low_s is None  # one run makes no interval
    lines = [line for line in store.lines() if line.kind == "JobRevised"]
    assert [line.uid for line in lines] == [second, third]
    assert '"source":"history"' in lines[0].body


def test_what_was_declared_is_not_revised(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    bench.submit(replace(SWEEP, array=()))
    (declared,) = bench.submit(replace(SWEEP, array=(), duration_s=7.0))
    bench.settle()
    assert (store.job(declared).duration_s, store.job(declared).duration_source) == (7.0, "declared")
    assert not [line for line in store.lines() if line.kind == "JobRevised"]


def test_what_is_no_news_is_not_written(store: Store) -> None:
    """All take as long as predicted: nothing differs by the part that is news, so nothing is revised."""
    bench = Bench(store, "1x1:V100")
    bench.submit(SWEEP)
    bench.settle()
    assert NEWS_FRAC > 0
    assert not [line for line in store.lines() if line.kind == "JobRevised"]


def test_others_commands_teach_nothing(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    bench.submit(replace(request(5.0), command=("other",)))
    (mine,) = bench.submit(JobRequest(command=("train",)))
    for _ in range(4):
        bench.controller.turn()
    assert store.job(mine).duration_source == "default"


def test_earlier_runs_make_an_interval(store: Store) -> None:
    bench = Bench(store)
    for seconds in (30.0, 10.0, 20.0):
        bench.submit(request(seconds))
    bench.settle()
    (uid,) = bench.submit(replace(request(), duration_s=None))
    record = store.job(uid)
    assert (record.duration_low_s, record.duration_s, record.duration_high_s) == (10.0, 20.0, 30.0)
    found = bench.controller.engine.state.jobs
    assert found.duration(found.row_of[uid]).source is Source.HISTORY


def test_forecasts_reach_the_view_and_the_record_whole(store: Store) -> None:
    bench = Bench(store)
    asked = JobRequest(
        command=("train",), predicted_s=50.0, predicted_low_s=40.0, predicted_high_s=70.0, gpu_memory_bytes=2e9,
        gpu_memory_low_bytes=1e9, gpu_memory_high_bytes=3e9, gpu_memory_source=Source.PREDICTED, gpu_util_frac=0.5,
        gpu_util_low_frac=0.25, gpu_util_high_frac=0.75, gpu_util_source=Source.PREDICTED,
    )  # fmt: skip
    (uid,) = bench.submit(asked)
    bench.controller.turn()
    jobs, record = bench.controller.engine.view.jobs, store.job(uid)
    row = jobs.row_of[uid]
    for forecast, stem, unit in (
        (jobs.duration(row), "duration", "s"),
        (jobs.gpu_memory(row), "gpu_memory", "bytes"),
        (jobs.gpu_util(row), "gpu_util", "frac"),
    ):
        assert forecast.source is Source.PREDICTED
        assert forecast.low < forecast.value < forecast.high
        assert getattr(record, f"{stem}_low_{unit}") == forecast.low
        assert getattr(record, f"{stem}_high_{unit}") == forecast.high
        assert getattr(record, f"{stem}_source") == "predicted"
    assert jobs.duration_low_s.item(row) == 40.0


def test_whether_a_job_fits_is_asked_for_each_set_of_labels(store: Store) -> None:
    """The answer for a job without labels is not that for one with them."""
    engine, feasibility = Bench(store).controller.engine, Feasibility()
    for asked in (request(), request(require={"zone": ("a",)}), request(within="zone"), request(cpus=1.0)):
        feasibility.is_feasible(engine, asked)
    assert len(feasibility.answers) == 4


def test_a_job_of_the_version_before_keeps_where_its_run_time_comes_from(store: Store) -> None:
    """Its declaration in the journal does not say; its record does."""
    bench = Bench(store, "1x1:V100")
    first, second = bench.submit(request(10.0), JobRequest(command=("train",), predicted_s=30.0))
    jobs = bench.controller.engine.state.jobs
    for uid in (first, second):
        jobs.revise_duration(jobs.row_of[uid], Forecast(jobs.duration(jobs.row_of[uid]).value))
        adopt(store.job(uid), jobs, jobs.row_of[uid])
    found = [jobs.duration(jobs.row_of[uid]) for uid in (first, second)]
    assert [(each.value, each.source) for each in found] == [(10.0, Source.DECLARED), (30.0, Source.PREDICTED)]
