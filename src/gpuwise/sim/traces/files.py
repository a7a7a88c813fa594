"""Trace files in and out: which format a file is in, reading any of them, and writing gpuwise's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gpuwise.core.errors import UnknownNameError
from gpuwise.sim.traces import gavel, native, openb, philly, pollux, sacct, tiresias
from gpuwise.sim.traces.errors import TraceError, count_reasons, shown
from gpuwise.sim.traces.generate import PREFIX, generate
from gpuwise.sim.traces.rows import Reading, read_rows
from gpuwise.sim.traces.schema import NodeRow
from gpuwise.sim.traces.source import Source, open_source
from gpuwise.sim.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format: how to recognize it by the start of a file, and how to read it."""

    name: str
    description: str
    sniff: Callable[[str], bool]
    read: Callable[[Source], Reading]


def _has(*columns: str) -> Callable[[str], bool]:
    """Recognize a CSV whose header has all these columns."""

    def sniff(head: str) -> bool:
        return set(columns) <= _header(head)

    return sniff


def _header(head: str) -> set[str]:
    return {field.strip().strip('"') for field in head.lstrip().split("\n", 1)[0].split(",")}


def _is_native(head: str) -> bool:
    return bool({"submit_s", "duration_s"} & _header(head))


def _is_parquet(head: str) -> bool:
    return head.startswith("PAR1")


def _is_philly_json(head: str) -> bool:
    return head.lstrip().startswith("[") and '"attempts"' in head


# In the order they are tried: Muri's and Chronus' headers have Tiresias' columns too.
FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format("gpuwise", "gpuwise's own CSV: submit_s, duration_s, gpus and more", _is_native, native.read_native_csv),
        Format("gpuwise-parquet", "the same columns in Parquet", _is_parquet, native.read_native_parquet),
        Format("philly-json", "Microsoft Philly, the original JSON log", _is_philly_json, philly.read_philly_json),
        Format("philly-csv", "Microsoft Philly as Pollux' CSV", _has(*philly.CSV_COLUMNS), philly.read_philly_csv),
        Format("pollux-workload", "Pollux' workloads", _has(*pollux.COLUMNS), pollux.read_pollux),
        Format("muri", "Muri's CSV, in milliseconds", _has(*tiresias.MURI_COLUMNS), tiresias.read_muri),
        Format("chronus", "Chronus' CSV, with deadlines", _has(*tiresias.CHRONUS_COLUMNS), tiresias.read_chronus),
        Format("tiresias", "Tiresias' CSV, in seconds", _has(*tiresias.TIRESIAS_COLUMNS), tiresias.read_tiresias),
        Format("openb", "Alibaba's openb pods, with shared GPUs", _has(*openb.COLUMNS), openb.read_openb),
        Format("sacct", "Slurm accounting, printed by sacct -P", sacct.sniff_sacct, sacct.read_sacct),
        Format("gavel", "Gavel's and Shockwave's .trace files", gavel.sniff_gavel, gavel.read_gavel),
    )
}


def detect(source: Source) -> Format:
    """The format of a file, from its content; its name does not matter."""
    head = source.head()
    for entry in FORMATS.values():
        if entry.sniff(head):
            return entry
    if "\0" in head or head.count("\ufffd") > 8:
        raise TraceError(f"{source.name}: binary data, not a trace")
    first = head.lstrip().split("\n", 1)[0].rstrip("\r")
    raise TraceError(
        f"{source.name}: not a trace that gpuwise knows; its first line is {shown(first)}\n"
        f"formats: {', '.join(FORMATS)}; a CSV of your own needs the columns submit_s, duration_s and gpus"
    )


def read_trace(
    path: str | Path, format: str | None = None, skip_bad: bool = False, throughputs: str | Path | None = None
) -> Trace:
    """Read a trace file in any known format, or make the trace that a ``gen:`` spec describes.

    The format is recognized by the content unless ``format`` names it. A bad row is an error that names the file, line,
    column and value; with ``skip_bad`` it is left out and kept in ``Trace.skipped``. ``throughputs`` is the table
    that turns the steps of a Gavel trace into seconds, where it is not beside the trace.
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
    return _accept(native.read_frame(frame, name), name, name, "frame", skip_bad)


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


def read_nodes(path: str | Path) -> list[NodeRow]:
    """The nodes of a cluster file: an openb node list, or a cluster spec of Tiresias or Muri (memory in GiB)."""
    rows = read_rows(open_source(path))
    if all(name in rows for name in openb.NODE_COLUMNS):
        nodes = openb.read_openb_nodes(rows)
    elif all(name in rows for name in tiresias.NODE_COLUMNS):
        nodes = tiresias.read_spec_nodes(rows)
    else:
        raise TraceError(
            f"{path}: not a cluster file; its columns are {shown(','.join(rows.cells.columns))}, not "
            f"{','.join(openb.NODE_COLUMNS)} (openb) or {','.join(tiresias.NODE_COLUMNS)} (Tiresias, Muri)"
        )
    if not nodes:
        raise TraceError(f"{path}: no nodes in it, only a header")
    return nodes
