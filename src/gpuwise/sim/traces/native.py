"""gpuwise's own traces: CSV or Parquet with the canonical columns, three of which are required."""

from __future__ import annotations

import io

import numpy as np
import polars as pl

from gpuwise.core.errors import GpuwiseError, nearest_names
from gpuwise.core.job.schema import Entry
from gpuwise.sim.traces.errors import TraceError, shown
from gpuwise.sim.traces.rows import Reading, Rows, read_rows
from gpuwise.sim.traces.schema import BATCH, JOB, OLD_BATCH, OUTCOMES, REQUIRED, TRACE_SCHEMA, Rule, Values
from gpuwise.sim.traces.source import Source


def read_native_csv(source: Source) -> Reading:
    """gpuwise's CSV: submit_s, duration_s and gpus; any other canonical column may follow, its cells may be empty."""
    return _check(read_rows(source))


def read_native_parquet(source: Source) -> Reading:
    """gpuwise's Parquet: the same columns as the CSV."""
    try:
        frame = pl.read_parquet(io.BytesIO(source.data))
    except Exception as error:  # polars raises several kinds for damaged files
        raise TraceError(f"{source.name}: a damaged Parquet file: {shown(str(error))}") from None
    return read_frame(frame, source.name)


def read_frame(frame: pl.DataFrame, name: str) -> Reading:
    """Check a frame with canonical columns as if it came from a file; missing columns get their defaults."""
    try:
        cells = frame.with_columns(pl.all().cast(pl.String))
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"{name}: a column has neither text nor numbers: {shown(str(error))}") from None
    return _check(Rows(name, cells, np.arange(1, frame.height + 1), unit="row"))


def _check(rows: Rows) -> Reading:
    for name in rows.cells.columns:
        if name not in TRACE_SCHEMA and name != OLD_BATCH:
            near = ", ".join(nearest_names(name, TRACE_SCHEMA))
            hint = f"; did you mean {near}?" if near else f"; the columns are {', '.join(TRACE_SCHEMA)}"
            raise TraceError(f"{rows.file}: unknown column {shown(name)}{hint}")
    rows.require(REQUIRED, "; a trace needs submit_s, duration_s and gpus")
    columns: dict[str, Values] = {}
    for name, column in TRACE_SCHEMA.items():
        if name == "id" or name not in rows:
            continue
        if column.rule is None:
            columns[name] = _texts(rows, name)
        else:
            columns[name] = _numbers(rows, name, column.rule, columns)
    if OLD_BATCH in rows:
        columns |= _from_batch_size(rows, columns)
    _check_between_columns(rows, columns)
    return rows.finish(id_column="id" if "id" in rows else None, **columns)


def _texts(rows: Rows, name: str) -> Values:
    """A column of text, with values that a property cannot have flagged."""
    texts = rows.text(name)
    if name in JOB and name != "id":
        for text in texts.unique():
            if why := _wrong_text(JOB[name], text):
                rows.flag((texts == text).to_numpy(), name, f"is not {why}")
    return texts


def _wrong_text(entry: Entry, text: str) -> str:
    """What a cell must be instead; empty if it is right."""
    if not text:
        return ""
    try:
        return entry.wrong(entry.kind.from_cell(text))
    except (GpuwiseError, ValueError, TypeError):
        return entry.about.noun or entry.kind.noun


def _from_batch_size(rows: Rows, columns: dict[str, Values]) -> dict[str, Values]:
    """What versions before ``batch_per_gpu`` wrote: the batch of all GPUs, and unknown steps as the run time."""
    batch = rows.number(OLD_BATCH, BATCH, default=0.0)
    made: dict[str, Values] = {"batch_per_gpu": np.ceil(batch / np.maximum(np.asarray(columns["gpus"]), 1))}
    if "steps" in columns:
        steps = np.asarray(columns["steps"])
        made["steps"] = np.where(steps == np.asarray(columns["duration_s"]), np.nan, steps)
    return made


def _numbers(rows: Rows, name: str, rule: Rule, earlier: dict[str, Values]) -> Values:
    """A column of numbers, with empty cells taking the default, which may be another column's value."""
    column = TRACE_SCHEMA[name]
    if column.default is None:
        return rows.number(name, rule)
    numbers = rows.number(name, rule, default=float(column.default))
    if column.same_as is not None:
        empty = (rows.text(name) == "").to_numpy()
        numbers = np.where(empty, np.asarray(earlier[column.same_as]), numbers)
    return numbers


def _check_between_columns(rows: Rows, columns: dict[str, Values]) -> None:
    gpus = np.asarray(columns["gpus"])
    if "min_gpus" in columns:
        fewest = np.asarray(columns["min_gpus"])
        rows.flag(fewest > gpus, "min_gpus", "is above gpus")
        rows.flag((fewest == 0) & (gpus > 0), "min_gpus", "is 0; a job that asks for GPUs needs 1 or more")
    if "gpu_frac" in columns:
        several = (np.asarray(columns["gpu_frac"]) < 1) & (gpus != 1)
        rows.flag(several, "gpu_frac", "is a fraction; only a job of one GPU may ask for one")
    if "max_gpus" in columns:
        rows.flag(np.asarray(columns["max_gpus"]) < gpus, "max_gpus", "is below gpus")
    if "deadline_s" in columns:
        early = np.asarray(columns["deadline_s"]) < np.asarray(columns["submit_s"])
        rows.flag(
            early, "deadline_s", "is before submit_s; deadlines are on the same clock, not counted from submission"
        )
    if "outcome" in columns:
        unknown = ~rows.text("outcome").is_in(OUTCOMES).to_numpy()
        rows.flag(unknown, "outcome", "is not succeeded, failed, cancelled or empty")
