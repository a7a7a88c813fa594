"""gpuwise's own CSV and Parquet: defaults, order, round trips."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import polars as pl
import pytest

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import read_trace, trace_from_frame, write_trace
from gpuwise.sim.traces.schema import TRACE_SCHEMA

DTYPES = {name: column.dtype for name, column in TRACE_SCHEMA.items()}


def test_three_columns_are_enough(write):
    trace = read_trace(write("jobs.csv", "submit_s,duration_s,gpus", "0,60,4", "5,120,1"))
    assert dict(trace.jobs.schema) == DTYPES
    assert trace.format == "gpuwise"
    first = trace.jobs.row(0, named=True)
    assert first["id"] == "0"
    assert (first["min_gpus"], first["max_gpus"]) == (4, 4)
    assert math.isnan(first["steps"])  # not known
    assert first["deadline_s"] == math.inf
    assert math.isnan(first["gpu_util_frac"])
    assert first["gpu_frac"] == 1.0


def test_jobs_are_sorted_by_submission_and_ties_keep_the_order_of_the_file(write):
    trace = read_trace(write("jobs.csv", "id,submit_s,duration_s,gpus", "c,9,1,1", "b,3,1,1", "a,3,1,1"))
    assert trace.jobs["id"].to_list() == ["b", "a", "c"]
    assert trace.jobs["submit_s"].to_list() == [3.0, 3.0, 9.0]  # kept: these times are already relative


def test_empty_cells_take_the_default(write):
    lines = ("submit_s,duration_s,gpus,max_gpus,steps,priority,gpu_frac", "0,60,1,,,,", "1,60,1,8,500,3,0.5")
    jobs = read_trace(write("jobs.csv", *lines)).jobs
    assert jobs["max_gpus"].to_list() == [1, 8]
    assert math.isnan(jobs["steps"][0])
    assert jobs["steps"][1] == 500.0
    assert jobs["priority"].to_list() == [0, 3]
    assert jobs["gpu_frac"].to_list() == [1.0, 0.5]


def test_a_trace_of_the_version_before_is_read(write):
    """It has the batch of all GPUs, and where steps were not known it says one for each second."""
    lines = ("submit_s,duration_s,gpus,steps,batch_size", "0,60,4,60.0,256", "1,60,3,500,100", "2,60,0,60,")
    jobs = read_trace(write("old.csv", *lines)).jobs
    assert jobs["batch_per_gpu"].to_list() == [64, 34, 0]
    assert [None if steps != steps else steps for steps in jobs["steps"]] == [None, 500.0, None]
    assert "batch_size" not in jobs.columns


def test_every_property_is_written_and_read_back(tmp_path: Path):
    given = pl.DataFrame({
        "submit_s": [0.0], "duration_s": [60.0], "gpus": [2], "require": ["zone=a,b|rack=7"], "prefer": ["gen=2"],
        "within": ["zone"], "roles": ["ps:2,cpus=4.5|worker:2,gpus=1"], "retries": [3], "gpu_memory_bytes": [2e9],
        "gpu_memory_low_bytes": [1e9], "gpu_memory_source": ["predicted"], "speeds": ["V100=1.5"],
        "sharing": ["exclusive|mig"], "model": ["bert"], "batch_per_gpu": [8], "steps": [60.0],
    })  # fmt: skip
    write_trace(trace_from_frame(given), tmp_path / "a.csv")
    again = read_trace(tmp_path / "a.csv").jobs
    assert {name: again[name].to_list() for name in given.columns} == given.to_dict(as_series=False)


@pytest.mark.parametrize(
    ("column", "cell", "told"),
    [
        ("require", "zone", "is not labels such as zone=a,b"),
        ("roles", "ps:many", "is not a list of roles"),
        ("roles", "ps:2,gpu=1", "is not a list of roles"),
        ("within", "a b", "is not the key of a label such as zone"),
        ("sharing", "sometimes", "is not at least one of exclusive"),
        ("gpu_memory_source", "hearsay", "is not declared or history or"),
        ("speeds", "V100=fast", "is not each GPU type once"),
        ("retries", "101", "is not a whole number from 0 to 100"),
    ],
)
def test_a_value_that_a_property_cannot_have_is_a_bad_row(write, column: str, cell: str, told: str):
    path = write("jobs.csv", f"submit_s,duration_s,gpus,{column}", f'0,60,1,"{cell}"')
    with pytest.raises(TraceError, match=rf"jobs.csv:2: column {column}: '{cell}' {told}"):
        read_trace(path)


@pytest.fixture
def rich(write) -> pl.DataFrame:
    lines = (
        "id,submit_s,duration_s,gpus,min_gpus,max_gpus,gpu_frac,gpu_types,deadline_s,model,gpu_util_frac,outcome",
        'a,0.1,0.30000000000000004,0,0,0,1,,inf,"BERT, large",nan,',
        "b,1e3,86400,8,2,16,1,V100M16|V100M32,1e9,rèsnet,0.7,failed",
    )
    return read_trace(write("rich.csv", *lines)).jobs


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_written_trace_reads_back_the_same(rich: pl.DataFrame, tmp_path: Path, name: str):
    write_trace(rich, tmp_path / name)
    assert read_trace(tmp_path / name).jobs.equals(rich)


def test_a_trace_and_its_frame_write_the_same(rich: pl.DataFrame, tmp_path: Path):
    write_trace(trace_from_frame(rich), tmp_path / "a.csv")
    write_trace(rich, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_frame_is_checked_like_a_file():
    with pytest.raises(TraceError, match=r"^frame: row 2: column duration_s: '-1.0' is not a duration above 0 s"):
        trace_from_frame(pl.DataFrame({"submit_s": [0, 1], "duration_s": [5.0, -1.0], "gpus": [1, 1]}))


@pytest.mark.parametrize("path", ["out.txt", "out", "no/such/folder/out.csv"])
def test_a_trace_that_cannot_be_written_says_why(rich: pl.DataFrame, tmp_path: Path, path: str):
    with pytest.raises(TraceError, match="out"):
        write_trace(rich, tmp_path / path)


def test_byte_order_mark_crlf_gzip_and_quotes_are_accepted(tmp_path: Path):
    text = '\ufeffid,submit_s,duration_s,gpus\r\n"a ""x"", y",0,60,1\r\n\r\nb,1,60,1\r\n'
    plain, packed, wide = tmp_path / "a.csv", tmp_path / "a.csv.gz", tmp_path / "wide.csv"
    plain.write_bytes(text.encode())
    packed.write_bytes(gzip.compress(text.encode()))
    wide.write_bytes(text.encode("utf-16-le"))  # what PowerShell's > writes
    for path in (plain, packed, wide):
        assert read_trace(path).jobs["id"].to_list() == ['a "x", y', "b"]


def test_the_trace_tells_what_is_in_it(write):
    trace = read_trace(write("jobs<b>.csv", "submit_s,duration_s,gpus", "0,3600,4", "7200,3600,1"))
    # 4 GPUs for an hour and 1 GPU for an hour
    assert trace.gpu_seconds == 5 * 3600
    assert "2 jobs submitted over 2.0 h" in trace.summary()
    assert "5.0 GPU-hours" in trace.summary()
    assert "jobs&lt;b&gt;.csv" in trace._repr_html_()
    assert "<table" in trace._repr_html_()
    assert len(trace) == 2


def test_a_fraction_of_several_gpus_is_a_bad_row(write):
    path = write("jobs.csv", "submit_s,duration_s,gpus,gpu_frac", "0,60,1,0.5", "1,60,2,0.5")
    with pytest.raises(TraceError, match=r"jobs.csv:3: column gpu_frac: '0.5' is a fraction; only a job of one GPU"):
        read_trace(path)
