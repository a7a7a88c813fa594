"""Reader of Slurm's accounting as ``sacct -P`` prints it: fields between bars, a header line, any set of columns."""

from __future__ import annotations

import numpy as np
import polars as pl

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.philly import since_first
from gpuwise.sim.traces.rows import Mask, Numbers, Reading, Rows, read_rows
from gpuwise.sim.traces.schema import PRIORITY, SECONDS, complete
from gpuwise.sim.traces.source import Source

COMMAND = (
    "sacct -a -P -X --format=JobID,User,Account,Submit,Start,End,ElapsedRaw,State,ReqTRES,AllocTRES,Timelimit,Priority"
)
RAW_ID = "JobIDRaw"
"""The number of each job or task, which sacct prints in place of JobID or beside it."""
LAYOUT = "%Y-%m-%dT%H:%M:%S"
OUTCOME_OF_STATE = {
    "COMPLETED": "succeeded",
    **dict.fromkeys(("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "DEADLINE"), "failed"),
    **dict.fromkeys(("CANCELLED", "PREEMPTED", "REVOKED"), "cancelled"),
}
UNFINISHED = ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED")
UNKNOWN_TIMES = ("", "Unknown", "None", "N/A")
GPU_COLUMNS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
MEMORY_UNITS = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def sniff_sacct(head: str) -> bool:
    """Whether the first line is a header of sacct's, with or without bars."""
    return not {"JobID", RAW_ID}.isdisjoint(head.split("\n", 1)[0].replace("|", " ").split())


def read_sacct(source: Source) -> Reading:
    """Slurm: one job per JobID, lasting Elapsed, on its allocated GPUs; the tenant is the account, or else the user.

    GPUs, CPUs and memory are those of AllocTRES, or of ReqTRES, or GPUs of AllocGRES (the job's total) or of ReqGRES
    (each node's). GPU types only bind when the job asked for one (ReqTRES). Tasks of an array are jobs of their own;
    the parts of a heterogeneous job (123+0, 123+1) are one job. Left out: steps of a job, unfinished jobs, jobs that
    never ran or ran for 0 s, and earlier runs of a requeued job. Jobs without GPUs stay, with gpus = 0. Without JobID
    it is JobIDRaw that counts, which is another number for each part of a heterogeneous job: those stay apart.
    """
    rows = _read(source)
    id_column = "JobID" if "JobID" in rows else RAW_ID
    ids = rows.text(id_column)
    rows.leave_out(ids.str.contains(".", literal=True).to_numpy(), "steps of a job")
    state = rows.text("State").str.extract(r"^(\w+)").fill_null("")
    rows.leave_out(state.is_in(UNFINISHED).to_numpy(), "unfinished jobs")
    duration_s = _duration_s(rows)
    rows.leave_out(duration_s == 0, "jobs that never ran or ran for 0 s")
    rows.leave_out(_superseded(ids, rows), "earlier runs of a requeued job")
    asked = rows.text("ReqTRES")
    tres = _first_filled(rows.text("AllocTRES"), asked)
    tenant = _first_filled(rows.text("Account"), rows.text("User"))
    submit_s = rows.time("Submit", LAYOUT, epoch=True)
    reading = rows.finish(
        id_column=id_column,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=_gpus(rows, tres),
        gpu_types=asked.str.extract(r"gres/gpu:([^=,:]+)=").fill_null(""),
        cpus=tres.str.extract(r"(?:^|,)cpu=(\d+)").cast(pl.Float64).fill_null(0.0),
        memory_bytes=_memory_bytes(tres),
        priority=rows.number("Priority", PRIORITY, default=0),
        tenant=tenant,
        outcome=state.replace_strict(OUTCOME_OF_STATE, default="", return_dtype=pl.String),
    )
    return since_first(_join_heterogeneous(reading))


def _read(source: Source) -> Rows:
    if "|" not in source.head().split("\n", 1)[0]:
        raise TraceError(f"{source.name}: sacct's fields are not separated by bars; print them with\n  {COMMAND}")
    rows = read_rows(source, "|")
    rows.require(("Submit",) if RAW_ID in rows else ("JobID", "Submit"), f"\nprint the jobs with\n  {COMMAND}")
    timed = "Elapsed" in rows or "ElapsedRaw" in rows or ("Start" in rows and "End" in rows)
    if not timed:
        rows.require(("ElapsedRaw",), f"\nprint the jobs with\n  {COMMAND}")
    if not any(name in rows for name in GPU_COLUMNS):
        rows.require(("AllocTRES",), f"\nprint the jobs with\n  {COMMAND}")
    return rows


def _duration_s(rows: Rows) -> Numbers:
    if "ElapsedRaw" in rows:
        return rows.number("ElapsedRaw", SECONDS, default=0)
    if "Elapsed" in rows:
        return _clock_s(rows)
    for column in ("Start", "End"):
        rows.leave_out(rows.text(column).is_in(UNKNOWN_TIMES).to_numpy(), "jobs that never ran or ran for 0 s")
    duration_s = rows.time("End", LAYOUT, epoch=True) - rows.time("Start", LAYOUT, epoch=True)
    rows.flag(duration_s < 0, "End", "is before Start")
    return duration_s


def _clock_s(rows: Rows) -> Numbers:
    """Elapsed, written as days-hours:minutes:seconds with the larger parts optional, in seconds."""
    text = rows.text("Elapsed")
    pattern = r"^(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)$"
    parts = text.str.extract_groups(pattern).struct.unnest().cast(pl.Float64)
    known = parts["seconds"].is_not_null().to_numpy() | (text == "").to_numpy()
    rows.flag(~known, "Elapsed", "is not a time written as [days-][hours:]minutes:seconds")
    parts = parts.fill_null(0.0)
    total = parts["days"] * 86400 + parts["hours"] * 3600 + parts["minutes"] * 60 + parts["seconds"]
    return total.to_numpy()


def _superseded(ids: pl.Series, rows: Rows) -> Mask:
    """All but the last record of each JobID, among those that still count as jobs."""
    kept = np.flatnonzero(rows.kept)
    superseded = np.zeros(len(rows), dtype=np.bool_)
    superseded[kept] = ~ids.gather(kept).is_last_distinct().to_numpy()
    return superseded


def _first_filled(first: pl.Series, second: pl.Series) -> pl.Series:
    return first.zip_with(first != "", second)


def _gpus(rows: Rows, tres: pl.Series) -> Numbers:
    """The job's GPUs: gres/gpu=4, or the sum over types of gres/gpu:a100=2, or GRES written gpu:2 or gpu:tesla:2."""
    total = tres.str.extract(r"(?:^|,)gres/gpu=(\d+)").cast(pl.Float64).to_numpy()
    typed = tres.str.extract_all(r"gres/gpu:[^=,]+=\d+").list.eval(
        pl.element().str.extract(r"=(\d+)$").cast(pl.Float64)
    )
    gpus = np.where(np.isnan(total), typed.list.sum().fill_null(0.0).to_numpy(), total)
    nodes = rows.number("NNodes", SECONDS, default=1) if "NNodes" in rows else np.ones(len(rows))
    for column, factor in (("AllocGRES", np.ones(len(rows))), ("ReqGRES", nodes)):
        gres = rows.text(column).str.extract(r"(?:^|,|/)gpu:(?:[^:,(]+:)?(\d+)").cast(pl.Float64).fill_null(0.0)
        gpus = np.where(gpus > 0, gpus, gres.to_numpy() * factor)
    return np.asarray(gpus, dtype=np.float64)


def _memory_bytes(tres: pl.Series) -> Numbers:
    amount = tres.str.extract(r"(?:^|,)mem=(\d+(?:\.\d+)?)").cast(pl.Float64).fill_null(0.0)
    unit = tres.str.extract(r"(?:^|,)mem=[\d.]+([KMGTP]?)").fill_null("")
    return (amount * unit.replace_strict(MEMORY_UNITS, return_dtype=pl.Float64)).to_numpy()


def _join_heterogeneous(reading: Reading) -> Reading:
    """Parts of a heterogeneous job, 123+0 and 123+1, as one job that needs what all of them need."""
    whole = pl.col("id").str.replace(r"\+\d+$", "")
    if not reading.jobs["id"].str.contains(r"\+\d+$").any():
        return reading
    summed = ("gpus", "min_gpus", "max_gpus", "cpus", "memory_bytes")
    longest = ("duration_s", "steps")
    others = [pl.exclude("id", *summed, *longest).first(), pl.col(longest).max(), pl.col(summed).sum()]
    jobs = reading.jobs.group_by(whole, maintain_order=True).agg(others)
    return Reading(complete(jobs.to_dict()), reading.bad, reading.left_out)
