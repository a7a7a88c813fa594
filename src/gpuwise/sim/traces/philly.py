"""Readers of Microsoft's Philly trace: the original JSON log and the CSV that Pollux made of it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.rows import Reading, Rows, read_rows
from gpuwise.sim.traces.schema import DURATION, GPUS
from gpuwise.sim.traces.source import Source

CSV_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
OUTCOME_OF_STATUS = {"Pass": "succeeded", "Failed": "failed", "Killed": "cancelled"}
LAYOUT = "%Y-%m-%d %H:%M:%S"
NO_TIME = ("", "None")


def read_philly_csv(source: Source) -> Reading:
    """Pollux' philly.csv: timestamp, duration in seconds, num_gpus, gpu_time, cluster; ids are row numbers, from 0."""
    rows = read_rows(source)
    rows.require(("timestamp", "duration", "num_gpus"))
    submit_s = rows.time("timestamp")
    return since_first(
        rows.finish(
            id_column=None,
            submit_s=submit_s,
            duration_s=rows.number("duration", DURATION),
            gpus=rows.number("num_gpus", GPUS),
            tenant=rows.text("cluster"),
        )
    )


def since_first(reading: Reading) -> Reading:
    """The same jobs with dates turned into seconds since the first submission."""
    jobs = reading.jobs.with_columns(pl.col("submit_s") - pl.col("submit_s").min())
    return Reading(jobs, reading.bad, reading.left_out)


def read_philly_json(source: Source) -> Reading:
    """The original cluster_job_log: a JSON list of jobs, each with the attempts made to run it.

    A job's duration is the sum of its attempts' run times, its GPUs are those of the first attempt that lists any,
    its tenant is the virtual cluster. Left out: jobs without a submission time, without an attempt that has a start
    and an end, without a list of GPUs, or that ran for 0 s. Times are local (Pacific) and are read as they stand.
    """
    jobs = _json_list(source)
    rows = Rows(source.name, pl.DataFrame(_flatten(jobs)), np.arange(1, len(jobs) + 1), unit="job")
    rows.leave_out(rows.text("submitted_time").is_in(NO_TIME).to_numpy(), "jobs without a submission time")
    rows.leave_out((rows.text("run_s") == "").to_numpy(), "jobs without an attempt that has a start and an end")
    rows.leave_out((rows.text("gpus") == "0").to_numpy(), "jobs without a list of their GPUs")
    rows.leave_out((rows.text("run_s") == "0.0").to_numpy(), "jobs that ran for 0 s")
    status = rows.text("status")
    rows.flag(~status.is_in(list(OUTCOME_OF_STATUS)).to_numpy(), "status", "is not Pass, Failed or Killed")
    return since_first(
        rows.finish(
            id_column="jobid",
            submit_s=rows.time("submitted_time"),
            duration_s=rows.number("run_s", DURATION),
            gpus=rows.number("gpus", GPUS),
            tenant=rows.text("vc"),
            outcome=status.replace_strict(OUTCOME_OF_STATUS, default="", return_dtype=pl.String),
        )
    )


def _json_list(source: Source) -> list[Any]:
    try:
        jobs = json.loads(source.text())
    except json.JSONDecodeError as error:
        raise TraceError(f"{source.name}:{error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise TraceError(f"{source.name}: not a Philly log: JSON nested too deeply") from None
    if not isinstance(jobs, list):
        raise TraceError(f"{source.name}: not a Philly log: expected a JSON list of jobs")
    return jobs


def _flatten(jobs: list[Any]) -> dict[str, pl.Series]:
    names = ("jobid", "submitted_time", "status", "vc")
    columns: dict[str, list[str]] = {name: [] for name in (*names, "run_s", "gpus")}
    for job in jobs:
        fields = job if isinstance(job, dict) else {}
        attempts = fields.get("attempts")
        attempts = [a for a in attempts if isinstance(a, dict)] if isinstance(attempts, list) else []
        for name in names:
            value = fields.get(name)
            columns[name].append("" if value is None else str(value))
        columns["run_s"].append(_run_s(attempts))
        columns["gpus"].append(str(next((n for n in map(_gpus, attempts) if n), 0)))
    return {name: pl.Series(name, values, dtype=pl.String) for name, values in columns.items()}


def _run_s(attempts: list[dict[str, Any]]) -> str:
    """Seconds run over all attempts with both times; "" when there is none, the text itself when it is no time."""
    total_s = None
    for attempt in attempts:
        start, end = attempt.get("start_time"), attempt.get("end_time")
        if start in (None, *NO_TIME) or end in (None, *NO_TIME):
            continue
        try:
            run_s = (datetime.strptime(str(end), LAYOUT) - datetime.strptime(str(start), LAYOUT)).total_seconds()
        except ValueError:
            return f"{start} to {end}"
        total_s = run_s + (total_s or 0.0)
    return "" if total_s is None else str(total_s)


def _gpus(attempt: dict[str, Any]) -> int:
    detail = attempt.get("detail")
    nodes = [node for node in detail if isinstance(node, dict)] if isinstance(detail, list) else []
    return sum(len(node["gpus"]) for node in nodes if isinstance(node.get("gpus"), list))
