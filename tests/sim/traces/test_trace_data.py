"""The real traces, where they are at hand: row counts and values known from their publishers."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gpuwise.sim.traces.files import read_trace, write_trace
from gpuwise.sim.traces.trace import Trace


@pytest.mark.parametrize(
    ("path", "name", "jobs"),
    [
        ("pollux/traces/philly.csv", "philly-csv", 82_247),
        ("chronus/trace_job_Philly_SLO.csv", "chronus", 30_940 - 205),
        ("tiresias/60_job.csv", "tiresias", 60),
        ("peers/philly32x8_1000.csv", "tiresias", 1000),
        ("muri/cluster_exp/trace-data/cluster_trace.csv", "muri", 400),
        ("muri/simulator/trace-data/trace2.csv", "muri", 5755),
        ("alibaba_gpu_v2023/openb_pod_list_default.csv", "openb", 8152 - 1),
        ("gavel/traces/msr/seed0/103959.trace", "gavel", 986),
        ("gavel/traces/physical_cluster/max_min_fairness.trace", "gavel", 96),
        ("pollux/workloads/workload-1.csv", "pollux-workload", 160),
    ],
)
def test_real_traces_read_whole(data_dir: Path, path: str, name: str, jobs: int):
    trace = read_trace(data_dir / path)
    assert (trace.format, len(trace), trace.skipped) == (name, jobs, ())
    assert trace.jobs["submit_s"].is_sorted()
    assert trace.jobs["id"].is_unique().all()


def row(trace: Trace, job: str) -> dict[str, object]:
    return trace.jobs.filter(pl.col("id") == job).row(0, named=True)


def test_philly_csv_reads_right(data_dir: Path, tmp_path: Path):
    path = data_dir / "pollux" / "traces" / "philly.csv"
    trace = read_trace(path)
    assert row(trace, "0")["duration_s"] == 66.0  # the first line of the file, 2017-10-09 07:01:55
    # its first job was submitted on 2017-09-04 10:30:41: 34 days 20 h 31 min 14 s before
    assert row(trace, "0")["submit_s"] == 34 * 86400 + 20 * 3600 + 31 * 60 + 14
    assert trace.jobs["gpus"].value_counts().filter(pl.col("gpus") == 128)["count"].item() == 3
    write_trace(trace, tmp_path / "philly.parquet")
    assert read_trace(tmp_path / "philly.parquet").jobs.equals(trace.jobs)


def test_chronus_deadlines(data_dir: Path):
    trace = read_trace(data_dir / "chronus" / "trace_job_Philly_SLO.csv")
    first = row(trace, "0")
    assert (first["submit_s"], first["duration_s"], first["deadline_s"]) == (12198.0, 211.0, 12198.0 + 282.0)
    slack = trace.jobs.select((pl.col("deadline_s") - pl.col("submit_s")) / pl.col("duration_s")).to_series()
    assert slack.is_between(1, 5).all()  # every deadline can be met by a job that does not wait


def test_openb_pods(data_dir: Path):
    jobs = read_trace(data_dir / "alibaba_gpu_v2023" / "openb_pod_list_default.csv").jobs
    shared = jobs.filter((pl.col("gpus") > 0) & (pl.col("gpu_frac") < 1))
    assert len(shared) == 3078 - 1  # pods with a fraction of a GPU, less the one that lived for 0 s


def test_gavel_msr_durations_are_those_of_the_philly_jobs_behind_them(data_dir: Path):
    jobs = read_trace(data_dir / "gavel" / "traces" / "msr" / "seed0" / "103959.trace").jobs
    # ElasticFlow publishes the same two jobs with durations of 976,570 s and 1,792,395 s
    assert jobs["duration_s"].head(2).to_list() == pytest.approx([976_570, 1_792_395], rel=1e-5)


def test_shockwave(data_dir: Path):
    (path,) = (data_dir / "shockwave").glob("120_*.trace")
    trace = read_trace(path)
    assert len(trace) == 120
    assert row(trace, "0")["duration_s"] == 1418.0


def test_pollux_durations_are_those_of_its_own_simulator(data_dir: Path):
    jobs = read_trace(data_dir / "pollux" / "workloads" / "workload-1.csv").jobs
    published = json.loads((data_dir / "pollux/results-jobload/tiresias-1.0/summary.json").read_text())
    completion_s = pl.Series([published["jcts"]["workload-1"][job] for job in jobs["id"]])
    over = jobs.with_columns(over_s=completion_s - pl.col("duration_s")).filter(pl.col("gpus") <= 16)
    least = over.group_by("model").agg(pl.col("over_s").min())
    # Under Pollux' Tiresias a job that never waits pays a start of 30 s and up to a minute until the next round.
    for model in ("cifar10", "yolov3", "ncf"):
        assert 25 < least.filter(pl.col("model") == model)["over_s"].item() < 95, model
