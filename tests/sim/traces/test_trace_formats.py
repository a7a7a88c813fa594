"""Each format on a few rows made up for the test: what it is recognized by and what becomes of its columns."""

from __future__ import annotations

import json
import math

import pytest
from trace_samples import CHRONUS, GAVEL_12, MURI, OPENB, PHILLY_CSV, PHILLY_JSON, SACCT, TIRESIAS, column

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import FORMATS, read_trace

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("gpuwise", ("submit_s,duration_s,gpus", "0,1,1")),
        ("philly-json", (json.dumps(PHILLY_JSON),)),
        ("philly-csv", PHILLY_CSV),
        ("muri", MURI),
        ("chronus", CHRONUS),
        ("tiresias", TIRESIAS),
        ("openb", OPENB),
        ("sacct", SACCT),
        ("gavel", GAVEL_12),
    ],
)
def test_formats_are_told_by_content_whatever_the_name_and_the_line_ends(write, name: str, lines: tuple[str, ...]):
    for end in ("\n", "\r\n"):
        path = write("trace.dat", *lines, end=end)
        assert read_trace(path).format == name
        assert read_trace(path, format=name).jobs.equals(read_trace(path).jobs)


def test_every_format_has_a_description():
    assert all(name == entry.name and entry.description for name, entry in FORMATS.items())


def test_tiresias(write):
    trace = read_trace(write("t.csv", *TIRESIAS))
    assert column(trace, "id") == ["8", "7"]
    assert column(trace, "submit_s") == [30.0, 40.0]
    assert column(trace, "duration_s") == [100.0, 300.0]
    assert column(trace, "gpus") == [1, 2]
    assert column(trace, "steps") == [500.0, 900.0]
    assert column(trace, "model") == ["resnet50", "vgg16"]


def test_tiresias_names_its_own_column_in_an_error(write):
    path = write("t.csv", *TIRESIAS, "9,1,50,500,resnet50,-3,10")
    with pytest.raises(TraceError, match=r"t.csv:4: column duration: '-3' is not a duration above 0 s"):
        read_trace(path)


def test_muri_is_in_milliseconds_and_takes_iterations_times_iteration_time(write):
    trace = read_trace(write("m.csv", *MURI))
    assert column(trace, "submit_s") == [1.5]
    assert column(trace, "duration_s") == [250.0]  # 1000 × 250 ms, not the duration column
    assert column(trace, "batch_per_gpu") == [8]
    assert column(trace, "priority") == [1]


def test_chronus_deadlines_count_from_submission(write):
    trace = read_trace(write("c.csv", *CHRONUS))
    # 100 + 300; 110 + the first of 400-500; best effort has none; the job without a GPU is left out
    assert column(trace, "deadline_s") == [400.0, 510.0, math.inf]
    assert column(trace, "tenant") == ["vc_a", "vc_b", "vc_b"]
    assert trace.left_out == {"jobs that ask for no GPU": 1}
    assert "1 jobs that ask for no GPU" in trace.summary()


def test_philly_csv_starts_at_its_first_job(write):
    trace = read_trace(write("p.csv", *PHILLY_CSV))
    assert column(trace, "id") == ["1", "0"]  # row numbers in the order of the file, which is not that of time
    assert column(trace, "submit_s") == [0.0, 60.0]
    assert column(trace, "tenant") == ["bb", "aa"]
    with pytest.raises(TraceError, match=r":5: column timestamp: 'soon' is not a time such as 2017-10-09 07:02:52"):
        read_trace(write("p.csv", *PHILLY_CSV, "soon,1,1,1,aa"))


def test_philly_json(write):
    trace = read_trace(write("log", json.dumps(PHILLY_JSON)))
    assert column(trace, "id") == ["application_1", "application_2"]
    assert column(trace, "submit_s") == [0.0, 600.0]
    # application_2 ran for 10 min and then for 30 min; only its second attempt lists GPUs: 2 + 1
    assert column(trace, "duration_s") == [20.0, 2400.0]
    assert column(trace, "gpus") == [1, 3]
    assert column(trace, "outcome") == ["cancelled", "succeeded"]
    assert column(trace, "tenant") == ["bb", "aa"]
    assert trace.left_out == {
        "jobs without a submission time": 1,
        "jobs without an attempt that has a start and an end": 1,
    }


def test_philly_json_names_the_job_at_fault(write):
    odd = PHILLY_JSON[0] | {"status": "Lost"}
    with pytest.raises(TraceError, match=r"log: job 1: column status: 'Lost' is not Pass, Failed or Killed"):
        read_trace(write("log", json.dumps([odd])))
    with pytest.raises(TraceError, match="no jobs: 3 jobs without a submission time left out"):
        read_trace(write("log", json.dumps([1, {"attempts": 3}, {"attempts": [{"detail": [0]}]}])))


def test_openb_shares_gpus(write):
    trace = read_trace(write("o.csv", *OPENB))
    assert column(trace, "id") == ["p0", "p1", "p2"]
    assert column(trace, "duration_s") == [500.0, 40.0, 50.0]  # since scheduled; p1 never was: since created
    assert column(trace, "gpus") == [1, 0, 8]
    assert column(trace, "gpu_frac") == [0.46, 1.0, 1.0]
    assert column(trace, "gpu_types") == ["V100M16|V100M32", "", ""]
    assert column(trace, "cpus") == [12.0, 4.0, 4.0]
    assert column(trace, "memory_bytes") == [16 * GIB, GIB, GIB]
    assert column(trace, "priority") == [2, 0, 1]
    assert column(trace, "outcome") == ["succeeded", "", "failed"]
    assert trace.left_out == {"pods that lived for 0 s": 1}


def test_openb_refuses_impossible_pods(write):
    bad = ("q1,1,1,1,0,,LS,Running,0,9,1", "q2,1,1,1,1001,,LS,Running,0,9,1", "q3,1,1,1,1000,,LS,Running,8,9,10")
    trace = read_trace(write("o.csv", *OPENB, *bad), skip_bad=True)
    assert [(row.line, row.column) for row in trace.skipped] == [
        (6, "gpu_milli"),
        (7, "gpu_milli"),
        (8, "deletion_time"),
    ]
