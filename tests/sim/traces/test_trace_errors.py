"""Every way a trace can be wrong gives an error that names the place and the value, quickly and briefly."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuwise.core.errors import UnknownNameError
from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import read_trace

HEADER = "id,submit_s,duration_s,gpus,min_gpus,max_gpus,gpu_frac,deadline_s,outcome"
GOOD = "a,0,60,2,,,,,"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("b,0,-5,2,,,,,", "column duration_s: '-5' is not a duration above 0 s"),
        ("b,0,0,2,,,,,", "column duration_s: '0' is not a duration above 0 s"),
        ("b,0,nan,2,,,,,", "column duration_s: 'nan' is not a duration above 0 s"),
        ("b,0,inf,2,,,,,", "column duration_s: 'inf' is not a duration above 0 s"),
        ("b,0,,2,,,,,", "column duration_s: '' is not a duration above 0 s"),
        ("b,0,1 hour,2,,,,,", "column duration_s: '1 hour' is not a duration above 0 s"),
        ("b,-1,60,2,,,,,", "column submit_s: '-1' is not a time from 0 s"),
        ("b,inf,60,2,,,,,", "column submit_s: 'inf' is not a time from 0 s"),
        ("b,0,60,-1,,,,,", "column gpus: '-1' is not a whole number of GPUs from 0"),
        ("b,0,60,1.5,,,,,", "column gpus: '1.5' is not a whole number of GPUs from 0"),
        ("b,0,60,99999999999999999999,,,,,", "is not a whole number of GPUs from 0"),
        ("b,0,60,2,,,1.5,,", "column gpu_frac: '1.5' is not a fraction above 0 and at most 1"),
        ("b,0,60,2,,,0,,", "column gpu_frac: '0' is not a fraction above 0 and at most 1"),
        ("b,0,60,2,4,,,,", "column min_gpus: '4' is above gpus"),
        ("b,0,60,2,,1,,,", "column max_gpus: '1' is below gpus"),
        ("b,0,60,2,8,4,,,", "column min_gpus: '8' is above gpus"),
        ("b,50,60,2,,,,10,", "column deadline_s: '10' is before submit_s"),
        ("b,0,60,2,,,,,exploded", "column outcome: 'exploded' is not succeeded, failed, cancelled or empty"),
        ("a,0,60,2,,,,,", "column id: 'a' repeats the id of an earlier row"),
        (",0,60,2,,,,,", "column id: '' is not an id"),
        ("b,0,60", "'b,0,60' has not 9 fields"),
        ("b,0,60,2,,,,,,extra", "has not 9 fields"),
    ],
)
def test_a_bad_row_names_file_line_column_and_value(write, row: str, complaint: str):
    path = write("jobs.csv", HEADER, GOOD, "", row)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:4: ")  # the blank line counts
    assert complaint in str(caught.value)
    assert caught.value.rows[0].line == 4


def test_skip_bad_keeps_the_rest_and_reports_each_row_once(write):
    rows = ("b,0,-5,-2,,,,,", "c,0,60,2,,,,,", "d,x,60,2,,,,,", "e,0,-7,2,,,,,", "a,9,60,2,,,,,")
    trace = read_trace(write("jobs.csv", HEADER, GOOD, *rows), skip_bad=True)
    assert trace.jobs["id"].to_list() == ["a", "c"]
    assert [(row.line, row.column, row.value) for row in trace.skipped] == [
        (3, "duration_s", "-5"),  # its gpus are wrong too, but a row is skipped once
        (5, "submit_s", "x"),
        (6, "duration_s", "-7"),
        (7, "id", "a"),
    ]
    assert "4 bad rows skipped: 2 × duration_s is not a duration above 0 s" in trace.summary()


def test_the_error_counts_all_bad_rows_by_reason(write):
    path = write("jobs.csv", HEADER, GOOD, "b,0,-5,2,,,,,", "c,0,-6,2,,,,,", "d,0,60,x,,,,,")
    with pytest.raises(TraceError, match="3 bad rows in all: 2 × duration_s is not a duration above 0 s; 1 × gpus"):
        read_trace(path)


def test_an_id_freed_by_a_bad_row_may_be_used(write):
    trace = read_trace(write("jobs.csv", HEADER, "a,0,-1,2,,,,,", "a,0,60,2,,,,,"), skip_bad=True)
    assert [row.line for row in trace.skipped] == [2]
    assert trace.jobs["id"].to_list() == ["a"]


def test_nothing_left_is_an_error_even_when_skipping(write):
    path = write("jobs.csv", HEADER, "a,0,-1,2,,,,,")
    with pytest.raises(TraceError, match="no jobs: 1 bad rows: 1 × duration_s"):
        read_trace(path, skip_bad=True)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("submit_s,duration_s", "missing column gpus"),
        ("submit_s,gpus", "missing column duration_s"),
        ("submit_s,duration_s,gpus,prioritty", "unknown column 'prioritty'; did you mean priority?"),
        ("submit_s,duration_s,gpus,gpus", "column 'gpus' appears twice"),
        ("submit_s,duration_s,gpus", "no jobs in it, only a header"),
        ("submit,duration,gpus", "needs the columns submit_s, duration_s and gpus"),
    ],
)
def test_a_bad_header_says_what_is_missing(write, header: str, complaint: str):
    with pytest.raises(TraceError, match=complaint.replace("?", r"\?")):
        read_trace(write("jobs.csv", header))


def test_ten_megabytes_in_one_line_are_refused_briefly(tmp_path: Path):
    long = b"7" * 10_000_000
    files = {
        "header.csv": long,
        "header2.csv": b"submit_s,duration_s,gpus," + long + b"\n0,1,1,1\n",
        "columns.csv": b"submit_s,duration_s,gpus" + b",x" * 5_000_000 + b"\n",
        "field.csv": b"id,submit_s,duration_s,gpus\n" + long + b",0,60,1\n",
        "quoted.csv": b'id,submit_s,duration_s,gpus\n"' + long + b'",0,60,1\n',
        "fields.csv": b"id,submit_s,duration_s,gpus\n" + b"1," * 5_000_000 + b"\n",
        "bars.txt": b"JobID|Submit|ElapsedRaw|AllocTRES\n" + b"1|" * 5_000_000 + b"\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TraceError) as caught:
            read_trace(tmp_path / name)
        assert len(str(caught.value)) < 1500, name
        assert len(repr(caught.value.rows)) < 1000, name


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (bytes(range(256)) * 40, "binary data"),
        (b"submit_s,duration_s,gpus\n0,60,\x001\n", ":2: binary data"),
        (b"submit_s,duration_s,gpus\n0,60,\xff1\n", ":2: byte 0xff is not UTF-8"),
        (b"PAR1 but not really", "damaged Parquet"),
        (gzip.compress(b"submit_s,duration_s,gpus\n0,60,1\n", mtime=0)[:-9], "damaged gzip"),
        (b"\x1f\x8bnonsense", "damaged gzip"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b"hello\nworld\n", "its first line is 'hello'"),
        (b'{"jobs": []}', "not a trace that gpuwise knows"),
        (b'[{"attempts"', ":1: not JSON"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, data: bytes, complaint: str):
    path = tmp_path / "junk.csv"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=complaint):
        read_trace(path)


def test_missing_file_names_the_one_beside_it(write):
    path = write("jobs.csv", "submit_s,duration_s,gpus", "0,60,1")
    with pytest.raises(TraceError, match=r"job.csv: no such file; did you mean jobs.csv\?"):
        read_trace(path.parent / "job.csv")


def test_a_directory_is_no_trace(tmp_path: Path):
    with pytest.raises(TraceError, match="a directory"):
        read_trace(tmp_path)


def test_an_unknown_format_names_the_nearest(write):
    with pytest.raises(UnknownNameError, match="did you mean muri"):
        read_trace(write("jobs.csv", "x"), format="murri")


def test_a_format_given_wrongly_says_what_is_missing(write):
    with pytest.raises(TraceError, match="missing column job_id, num_gpu, submit_time, duration"):
        read_trace(write("jobs.csv", "submit_s,duration_s,gpus", "0,60,1"), format="tiresias")
