"""Slurm accounting, in the forms that sacct prints it."""

from __future__ import annotations

import pytest
from trace_samples import SACCT, column

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import read_trace

GIB = 2**30


def test_sacct(write):
    trace = read_trace(write("jobs.txt", *SACCT))
    assert column(trace, "id") == ["100", "101_4", "103"]
    assert column(trace, "submit_s") == [0.0, 60.0, 180.0]
    assert column(trace, "duration_s") == [3600.0, 600.0, 100.0]
    assert column(trace, "gpus") == [4, 1, 0]
    assert column(trace, "gpu_types") == ["a100", "", ""]
    assert column(trace, "cpus") == [8.0, 2.0, 1.0]
    assert column(trace, "memory_bytes") == [32 * GIB, 4000 * 2**20, 1024 * GIB]
    assert column(trace, "tenant") == ["vision", "speech", "cat"]
    assert column(trace, "outcome") == ["succeeded", "cancelled", "failed"]
    assert column(trace, "priority") == [4021, 10, 0]
    assert trace.left_out == {"steps of a job": 1, "unfinished jobs": 1, "jobs that never ran or ran for 0 s": 1}


def test_sacct_p_ends_each_line_with_a_bar(write):
    barred = read_trace(write("p.txt", *(line + "|" for line in SACCT)))
    assert barred.jobs.equals(read_trace(write("P.txt", *SACCT)).jobs)


@pytest.mark.parametrize(
    ("header", "row", "duration_s", "gpus"),
    [
        (
            "JobID|Submit|Elapsed|AllocTRES",
            "1|2024-03-01T10:00:00|1-02:03:04|gres/gpu:v100=2,gres/gpu:a100=1",
            93784,
            3,
        ),
        ("JobID|Submit|Elapsed|AllocGRES", "1|2024-03-01T10:00:00|03:04|gpu:2", 184, 2),
        ("JobID|Submit|Elapsed|AllocGRES", "1|2024-03-01T10:00:00|02:00:00|craynetwork:1,gpu:tesla:4", 7200, 4),
        ("JobID|Submit|Elapsed|ReqGRES|NNodes", "1|2024-03-01T10:00:00|00:00:09|gpu:2|3", 9, 6),
        ("JobID|Submit|Start|End|ReqTRES", "1|10|20|50|gres/gpu=1", 30, 1),
        ("JobID|Submit|Elapsed|AllocTRES|JobName", '1|2024-03-01T10:00:00|00:09|gres/gpu=1|"half quoted', 9, 1),
    ],
)
def test_sacct_with_other_columns(write, header: str, row: str, duration_s: float, gpus: int):
    trace = read_trace(write("jobs.txt", header, row))
    assert column(trace, "duration_s") == [duration_s]
    assert column(trace, "gpus") == [gpus]


def test_sacct_joins_heterogeneous_jobs_and_keeps_the_last_run_of_a_requeued_one(write):
    lines = (
        "JobID|Submit|ElapsedRaw|State|AllocTRES",
        "5+0|2024-03-01T10:00:00|100|COMPLETED|cpu=4,gres/gpu=2,mem=1G",
        "5+1|2024-03-01T10:00:00|120|COMPLETED|cpu=16,mem=3G",
        "6|2024-03-01T10:00:10|50|NODE_FAIL|cpu=1,gres/gpu=1",
        "6|2024-03-01T10:00:20|70|COMPLETED|cpu=1,gres/gpu=1",
    )
    trace = read_trace(write("jobs.txt", *lines))
    assert column(trace, "id") == ["5", "6"]
    assert column(trace, "gpus") == [2, 1]
    assert column(trace, "cpus") == [20.0, 1.0]
    assert column(trace, "memory_bytes") == [4 * GIB, 0.0]
    assert column(trace, "duration_s") == [120.0, 70.0]
    assert trace.left_out == {"earlier runs of a requeued job": 1}


def test_sacct_with_raw_ids(write):
    lines = (
        "JobIDRaw|Submit|ElapsedRaw|State|AllocTRES",
        "100|2024-03-01T10:00:00|100|COMPLETED|cpu=4,gres/gpu=2",
        "100.batch|2024-03-01T10:00:00|100|COMPLETED|cpu=4",
        "102|2024-03-01T10:00:10|50|NODE_FAIL|cpu=1,gres/gpu=1",
        "102|2024-03-01T10:00:20|70|COMPLETED|cpu=1,gres/gpu=1",
    )
    trace = read_trace(write("jobs.txt", *lines))
    assert column(trace, "id") == ["100", "102"]
    assert column(trace, "duration_s") == [100.0, 70.0]
    assert trace.left_out == {"steps of a job": 1, "earlier runs of a requeued job": 1}


def test_sacct_of_arrays_of_which_tasks_wait_or_never_ran(write):
    lines = (
        "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES",
        "123_4|2024-03-01T10:00:00|2024-03-01T10:00:10|2024-03-01T10:01:10|60|COMPLETED|gres/gpu=1",
        "123_4.batch|2024-03-01T10:00:10|2024-03-01T10:00:10|2024-03-01T10:01:10|60|COMPLETED|gres/gpu=1",
        "123_4.0|2024-03-01T10:00:10|2024-03-01T10:00:10|2024-03-01T10:01:10|60|COMPLETED|gres/gpu=1",
        "123_[5-9]|2024-03-01T10:00:00|Unknown|Unknown|0|PENDING|",
        "124_[1-3%2]|2024-03-01T10:00:00|None|2024-03-01T10:05:00|0|CANCELLED by 1000|",
    )
    trace = read_trace(write("jobs.txt", *lines))
    assert column(trace, "id") == ["123_4"]
    assert trace.left_out == {"steps of a job": 2, "unfinished jobs": 1, "jobs that never ran or ran for 0 s": 1}


def test_sacct_with_both_ids_goes_by_the_one_that_people_know(write):
    lines = ("JobIDRaw|JobID|Submit|ElapsedRaw|AllocTRES", "105|101_4|2024-03-01T10:00:00|100|gres/gpu=1")
    assert column(read_trace(write("jobs.txt", *lines)), "id") == ["101_4"]


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("JobID|ElapsedRaw|AllocTRES", "missing column Submit"),
        ("JobID|Submit|Start|AllocTRES", "missing column ElapsedRaw"),
        ("JobID|Submit|ElapsedRaw|State", "missing column AllocTRES"),
        ("JobID    JobName  Partition", "not separated by bars"),
    ],
)
def test_sacct_without_a_needed_column_gives_the_command(write, header: str, missing: str):
    with pytest.raises(TraceError, match=rf"(?s){missing}.*sacct -a -P -X --format=JobID,"):
        read_trace(write("jobs.txt", header, "|" * header.count("|")))


def test_sacct_with_a_bad_time(write):
    path = write("jobs.txt", "JobID|Submit|Elapsed|AllocTRES", "1|yesterday|00:09|cpu=1", "2|0|9 s|cpu=1")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert [(row.line, row.column, row.value) for row in caught.value.rows] == [
        (2, "Submit", "yesterday"),
        (3, "Elapsed", "9 s"),
    ]
