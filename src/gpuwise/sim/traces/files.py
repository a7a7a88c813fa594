"""Traces in and out: ``read_trace`` takes any known format, ``write_trace`` writes gpuwise's own."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gpuwise.core.errors import UnknownNameError
from gpuwise.sim.traces.errors import TraceError, count_reasons
from gpuwise.sim.traces.formats import FORMATS, detect
from gpuwise.sim.traces.generate import PREFIX, generate
from gpuwise.sim.traces.native import read_frame
from gpuwise.sim.traces.rows import Reading
from gpuwise.sim.traces.source import open_source
from gpuwise.sim.traces.trace import Trace


def read_trace(
    path: str | Path, format: str | None = None, skip_bad: bool = False, throughputs: str | Path | None = None
) -> Trace:
    """Read a trace file in any known format, or make the trace that a ``gen:`` spec describes.

    The format is told by the content unless ``format`` names it. A bad row is an error that names the file, line,
    column and value; with ``skip_bad`` it is left out and kept in ``Trace.skipped``. ``throughputs`` is the table
    that turns the steps of a Gavel trace into seconds, where it does not lie beside the trace.
    """
    if str(path).startswith(PREFIX):
        return generate(str(path))
    if format is not None and format not in FORMATS:
        raise UnknownNameError("trace format", format, FORMATS)
    source = open_source(path, throughputs)
    chosen = detect(source) if format is None else FORMATS[format]
    return _accept(chosen.read(source), source.name, Path(path).name, chosen.name, skip_bad)


def trace_from_frame(frame: pl.DataFrame, name: str = "frame", skip_bad: bool = False) -> Trace:
    """A trace from a frame with at least submit_s, duration_s and gpus, checked as a file would be."""
    return _accept(read_frame(frame, name), name, name, "frame", skip_bad)


def write_trace(trace: Trace | pl.DataFrame, path: str | Path) -> None:
    """Write a trace, or a frame with its columns, as gpuwise's CSV or Parquet, by the suffix of the path."""
    jobs = trace.jobs if isinstance(trace, Trace) else trace_from_frame(trace).jobs
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise TraceError(f"{path}: traces are written as .csv or .parquet, not {suffix or 'without a suffix'}")
    try:
        if suffix == ".csv":
            jobs.write_csv(path)
        else:
            jobs.write_parquet(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error}") from None


def _accept(reading: Reading, file: str, name: str, format: str, skip_bad: bool) -> Trace:
    if reading.bad and not skip_bad:
        raise TraceError.of_rows(reading.bad, "leave bad rows out with --skip-bad (skip_bad=True)")
    if reading.jobs.is_empty():
        raise TraceError(f"{file}: no jobs{_why_empty(reading)}", reading.bad)
    return Trace(reading.jobs, name, format, reading.bad, reading.left_out)


def _why_empty(reading: Reading) -> str:
    reasons = [f"{count} {why} left out" for why, count in reading.left_out.items()]
    if reading.bad:
        reasons.append(f"{len(reading.bad)} bad rows: {count_reasons(reading.bad)}")
    return f": {'; '.join(reasons)}" if reasons else " in it, only a header"
