"""Generators give what they state, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from gpuwise.core.errors import UnknownNameError
from gpuwise.sim.traces import gavel, generate
from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import read_trace, trace_from_frame
from gpuwise.sim.traces.generate import GENERATORS
from gpuwise.sim.traces.schema import TRACE_SCHEMA
from gpuwise.sim.traces.synthetic import milan, philly_like
from gpuwise.sim.traces.trace import Trace, prolong, repeat, scale_load, take

MAKERS: dict[str, Callable[[int], Trace]] = {
    "gavel": lambda seed: gavel(2000, 4, seed=seed),
    "milan": lambda seed: milan(200, seed=seed),
    "philly": lambda seed: philly_like(2000, seed=seed),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_same_seed_gives_the_same_jobs_and_another_does_not(make: Callable[[int], Trace]):
    assert make(3).jobs.equals(make(3).jobs)
    assert not make(3).jobs.equals(make(4).jobs)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_generated_traces_pass_the_checks_of_a_file(make: Callable[[int], Trace]):
    trace = make(0)
    assert trace_from_frame(trace.jobs).jobs.equals(trace.jobs)
    assert trace.jobs.columns == list(TRACE_SCHEMA)


def test_gavel_distributions():
    jobs = gavel(20_000, 4.0, seed=1).jobs
    # 4 jobs an hour are 900 s apart; the mean of 20,000 exponential gaps spreads by 900 / √20,000 = 6.4 s
    assert jobs["submit_s"][-1] / 19_999 == pytest.approx(900, abs=5 * 6.4)
    shares = [(jobs["gpus"] == size).sum() / 20_000 for size in (1, 2, 4, 8)]
    assert shares == pytest.approx([0.70, 0.10, 0.15, 0.05], abs=0.016)  # 5 × √(0.7 × 0.3 / 20,000)
    minutes = np.log10(jobs["duration_s"].to_numpy() / 60)
    assert 1.5 <= minutes.min() < minutes.max() <= 4
    assert (minutes < 3).mean() == pytest.approx(0.8, abs=0.014)
    assert np.median(minutes[minutes < 3]) == pytest.approx(2.25, abs=0.03)
    alone = jobs.filter(pl.col("model").is_in(["A3C", "CycleGAN", "Recommendation"]))
    assert set(alone["gpus"]) == {1}
    assert jobs.filter(pl.col("gpus") == 1).n_unique(["model", "batch_per_gpu"]) == 26


@pytest.mark.parametrize("mean_s", [30.0, 45.0])
def test_milan_instances(mean_s: float):
    jobs = milan(500, mean_s, seed=2).jobs
    assert len(jobs) == 10 * 500
    assert jobs["submit_s"][0] == 0
    assert jobs["submit_s"][-1] / 4999 == pytest.approx(mean_s, rel=0.07)  # 5 / √5,000
    alexnet = jobs.filter(pl.col("model") == "alexnet").row(0, named=True)
    assert alexnet["duration_s"] == pytest.approx(130_000 * 12 / 639)
    assert alexnet["steps"] == 508 * 12  # 130,000 / 256 = 507.8 batches an epoch
    # two of six kinds of job are vgg19; 5 × √(2/9 / 5,000) = 0.033
    assert (jobs["model"] == "vgg19").mean() == pytest.approx(1 / 3, abs=0.033)
    slack = jobs.select((pl.col("deadline_s") - pl.col("submit_s")) / pl.col("duration_s")).to_series()
    assert slack.is_between(1.5, 5).all()
    assert set(jobs["priority"]) == {1, 2, 3, 4, 5}


def test_philly_like_has_phillys_sizes_and_quantiles():
    jobs = philly_like(50_000, seed=3).jobs
    assert (jobs["gpus"] == 1).mean() == pytest.approx(0.932, abs=0.006)
    assert (jobs["gpus"] == 8).mean() == pytest.approx(0.020, abs=0.003)
    quantiles = [jobs["duration_s"].quantile(share, "linear") for share in (0.25, 0.5, 0.75, 0.9, 0.99)]
    # all of Philly's jobs together: 115, 1,144, 2,932, 11,265 and 254,758 s
    assert quantiles == pytest.approx([115, 1144, 2932, 11265, 254_758], rel=0.15)
    assert (jobs["outcome"] == "failed").mean() == pytest.approx(0.305, abs=0.01)


def test_philly_like_follows_the_hours_of_the_day():
    jobs = philly_like(50_000, seed=4).jobs
    hours = np.bincount((jobs["submit_s"].to_numpy() // 3600 % 24).astype(int), minlength=24)
    # 7,159 of 82,247 jobs came between 7 and 8, 2,185 between 14 and 15
    assert hours[7] / hours[14] == pytest.approx(7159 / 2185, rel=0.15)
    assert jobs["submit_s"][-1] == pytest.approx(50_000 * 114.4, rel=0.01)


@pytest.mark.parametrize("load", [0.5, 0.8, 2.0])
def test_philly_like_offers_the_load_asked_for(load: float):
    trace = philly_like(5000, seed=5, load=load, gpus=256)
    # the span is set so that the load is exact over it; the last job comes a little before its end
    assert trace.gpu_seconds / (256 * trace.jobs["submit_s"][-1]) == pytest.approx(load, rel=0.02)


def test_a_spec_generates_what_the_function_does():
    assert generate("gen:gavel?jobs=50&rate=4&seed=1").jobs.equals(gavel(50, 4.0, seed=1).jobs)
    assert read_trace("gen:milan?nodes=3&mean=45").jobs.equals(milan(3, 45.0).jobs)
    spec = "gen:philly?jobs=100&load=0.8&gpus=256&seed=0"
    trace = read_trace(spec)
    assert trace.jobs.equals(philly_like(100, 0, 0.8, 256).jobs)
    assert (trace.name, trace.format) == (spec, "gen:philly")


@pytest.mark.parametrize(
    ("spec", "error", "complaint"),
    [
        ("gen:gavell?jobs=1", UnknownNameError, "unknown generator 'gavell'; did you mean gavel?"),
        ("gen:gavel?job=1", UnknownNameError, "did you mean jobs?"),
        ("gen:gavel?rate=4", TraceError, "missing jobs; the form is gen:gavel?jobs=…&rate=…&seed=…"),
        ("gen:gavel?jobs=0&rate=4", TraceError, "jobs: '0' is not a whole number of jobs from 1"),
        ("gen:gavel?jobs=1e99&rate=4", TraceError, "jobs: '1e99' is not a whole number"),
        ("gen:gavel?jobs=ten&rate=4", TraceError, "jobs: 'ten' is not a whole number"),
        ("gen:gavel?jobs=5&rate=nan", TraceError, "rate: 'nan' is not a number of jobs per hour above 0"),
        ("gen:milan?nodes=2&mean", TraceError, "mean: '' is not a mean time between jobs above 0 s"),
        ("gen:philly?jobs=5&load=0.5", TraceError, "load and gpus belong together"),
        ("gen:", UnknownNameError, "unknown generator ''"),
    ],
)
def test_bad_specs(spec: str, error: type[Exception], complaint: str):
    with pytest.raises(error) as caught:
        read_trace(spec)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("make", [lambda: gavel(0, 4), lambda: gavel(5, -1), lambda: philly_like(5, load=0, gpus=1)])
def test_functions_refuse_what_specs_refuse(make: Callable[[], Trace]):
    with pytest.raises(TraceError, match="is not a number above 0"):
        make()


def test_every_generator_has_a_description_and_a_seed():
    assert all(entry.description and "seed" in entry.parameters for entry in GENERATORS.values())


def test_scale_load_moves_submissions_and_keeps_the_slack():
    trace = milan(5)
    faster = scale_load(trace, 2.0)
    assert faster.jobs["submit_s"][-1] == trace.jobs["submit_s"][-1] / 2
    before, after = (t.jobs["deadline_s"] - t.jobs["submit_s"] for t in (trace, faster))
    assert after.to_list() == pytest.approx(before.to_list())
    with pytest.raises(TraceError, match="cannot be scaled by 0"):
        scale_load(trace, 0)


def test_a_prolonged_trace_has_the_same_load_for_longer():
    trace = gavel(10, 4)
    longer = prolong(trace, 3)
    assert len(longer) == 30
    assert longer.jobs["id"].n_unique() == 30
    times = longer.jobs["submit_s"].to_numpy()
    assert (np.diff(times) >= 0).all()
    # Turns are apart by as much as jobs are on average, so the mean time between jobs stays what it was.
    assert np.diff(times).mean() == pytest.approx(np.diff(trace.jobs["submit_s"].to_numpy()).mean())
    assert longer.gpu_seconds == pytest.approx(3 * trace.gpu_seconds)
    with pytest.raises(TraceError, match="cannot prolong"):
        prolong(trace, 0)


def test_take_and_repeat():
    trace = gavel(10, 4)
    assert take(trace, 3).jobs.equals(trace.jobs.head(3))
    twice = repeat(trace, 2)
    assert len(twice) == 20
    assert twice.jobs["id"].to_list()[:2] == ["0#0", "0#1"]
    assert twice.gpu_seconds == pytest.approx(2 * trace.gpu_seconds)
    for bad in (lambda: take(trace, 0), lambda: repeat(trace, 0)):
        with pytest.raises(TraceError):
            bad()
