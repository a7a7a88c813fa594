"""What a journal tells of a run over time: who held which GPUs when, how long the queue was, how much was in use."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from gpuwise.core.commands import Migrate, Placement, Rearrange, Resize, Resume, Start, Suspend
from gpuwise.core.events import Event, JobCancelled, JobFailed, JobFinished, NodeLost
from gpuwise.core.state import ClusterState
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.engine.journal import Journal

Held = tuple[int, float, float, Placement]


def stays(journal: Journal) -> list[Held]:
    """Every stay of a job on GPUs: (job, from_s, to_s, placement), in the order they ended."""
    found: list[Held] = []
    since: dict[int, tuple[float, Placement]] = {}
    now_s = 0.0

    def leave(job: int) -> None:
        if job in since:
            begun_s, placement = since.pop(job)
            found.append((job, begun_s, now_s, placement))

    for record in journal.records:
        if isinstance(record, Event):
            now_s = record.at_s
        if isinstance(record, (Start, Resume)):
            since[record.job] = (now_s, record.placement)
        elif isinstance(record, (JobFinished, Suspend, JobCancelled, JobFailed)):
            leave(record.job)
        elif isinstance(record, (Migrate, Resize)):
            leave(record.job)
            since[record.job] = (now_s, record.placement)
        elif isinstance(record, Rearrange):
            for job, placement in record.moves:
                leave(job)
                since[job] = (now_s, placement)
        elif isinstance(record, NodeLost):
            for job in [job for job, (_, placement) in since.items() if record.node in placement.nodes]:
                leave(job)
    for job in list(since):
        leave(job)
    return found


def stays_frame(journal: Journal, state: ClusterState) -> pl.DataFrame:
    """Stays as a table, one row a job and node: for Gantt charts."""
    rows: dict[str, list[Any]] = {name: [] for name in ("id", "job", "node", "devices", "gpus", "start_s", "end_s")}
    for job, begun_s, ended_s, placement in stays(journal):
        for grant in placement.grants:
            rows["id"].append(state.jobs.ids[job])
            rows["job"].append(job)
            rows["node"].append(state.nodes.names[grant.node])
            rows["devices"].append(grant.devices)
            rows["gpus"].append(grant.devices.bit_count() * placement.milli / WHOLE_GPU_MILLI)
            rows["start_s"].append(begun_s)
            rows["end_s"].append(ended_s)
    schema = {"id": pl.String, "job": pl.Int64, "node": pl.String, "devices": pl.UInt64, "gpus": pl.Float64,
              "start_s": pl.Float64, "end_s": pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def timeline_frame(journal: Journal, state: ClusterState) -> pl.DataFrame:
    """At every change: jobs that wait, jobs that hold GPUs, GPUs held, GPUs used."""
    jobs = state.jobs
    times: list[float] = []
    placed: list[int] = []
    held: list[float] = []
    used: list[float] = []
    active: list[int] = []

    def change(at_s: float, jobs_active: int, jobs_placed: int, gpus: float, gpus_used: float) -> None:
        times.append(at_s)
        active.append(jobs_active)
        placed.append(jobs_placed)
        held.append(gpus)
        used.append(gpus_used)

    for job, begun_s, ended_s, placement in stays(journal):
        gpus = placement.gpus * placement.milli / WHOLE_GPU_MILLI
        known = jobs.gpu_util_frac.item(job)
        busy = gpus if math.isnan(known) else gpus * known
        change(begun_s, 0, 1, gpus, busy)
        change(ended_s, 0, -1, -gpus, -busy)
    for job in range(len(jobs)):
        change(jobs.submit_s.item(job), 1, 0, 0.0, 0.0)
        if not math.isnan(finish_s := jobs.finish_s.item(job)):
            change(finish_s, -1, 0, 0.0, 0.0)
    changes = pl.DataFrame({"at_s": times, "active": active, "running": placed, "gpus_held": held, "gpus_used": used})
    summed = changes.group_by("at_s").sum().sort("at_s").with_columns(pl.exclude("at_s").cum_sum())
    return summed.with_columns(waiting=pl.col("active") - pl.col("running")).drop("active")
