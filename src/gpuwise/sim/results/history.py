"""A run over time, from its journal: which jobs had which GPUs, how long the queue was, how much was in use."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Grant, Migrate, Placement, Rearrange, Resize, Resume, Start, Suspend
from gpuwise.core.events import (
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    NodeAdded,
    NodeChanged,
    NodeLost,
    NodeRemoved,
)
from gpuwise.core.job.needs import Sharing
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.engine.journal import Journal

Stay = tuple[int, float, float, Placement]
Use = tuple[float, float, float]


def stays(journal: Journal) -> list[Stay]:
    """Every time that a job had GPUs: (job, from_s, to_s, placement), in the order they ended."""
    return [(job, begun_s, ended_s, placement) for job, begun_s, _, ended_s, placement in _stays(journal)]


def uses(journal: Journal, state: ClusterState) -> list[Use]:
    """How much of the GPUs was in use while jobs made steps: (from_s, to_s, GPUs), to be added up.

    A job uses as much as its utilization alone. On a time slice it does so in its turn, on a MIG slice less by as much
    as it is slower there; jobs that share a GPU at the same time add up, to one GPU at most.
    """
    declared = DeclaredRates(state.jobs, state.nodes)
    found: list[Use] = []
    loads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for job, _, working_s, ended_s, placement in _stays(journal):
        part, known = placement.milli / WHOLE_GPU_MILLI, state.jobs.gpu_util_frac.item(job)
        if placement.sharing is Sharing.SHARED:
            load = state.jobs.shape_of(job).milli / WHOLE_GPU_MILLI if math.isnan(known) else known
            for device in placement.devices():
                loads.setdefault(device, []).extend(((working_s, load), (ended_s, -load)))
        else:
            used = part if math.isnan(known) else part * known
            if placement.sharing is Sharing.MIG and known == known:
                used = min(part, known * _slowed(declared, job, placement))
            found.append((working_s, ended_s, placement.gpus * used))
    return found + [use for changes in loads.values() for use in _summed(changes)]


def _slowed(rates: DeclaredRates, job: int, placement: Placement) -> float:
    """The speed of a job on a slice, as a part of its speed on the whole GPU."""
    whole = Placement(tuple(Grant(grant.node, grant.devices) for grant in placement.grants), Sharing.EXCLUSIVE)
    there, alone = rates.rates((job, job), (placement, whole), ((), ()))
    return there / alone if alone > 0 else 1.0


def _summed(changes: list[tuple[float, float]]) -> list[Use]:
    """The use of one GPU from the times at which jobs started and stopped there, with their loads."""
    found: list[Use] = []
    load, since_s = 0.0, 0.0
    for at_s, change in sorted(changes):
        if load > 0.0 and at_s > since_s:
            found.append((since_s, at_s, min(1.0, load)))
        load, since_s = load + change, at_s
    return found


def _stays(journal: Journal) -> list[tuple[int, float, float, float, Placement]]:
    """Every stay: (job, from_s, first step_s, to_s, placement); one without a step has its first step at its end."""
    found: list[tuple[int, float, float, float, Placement]] = []
    since: dict[int, tuple[float, Placement]] = {}
    working: dict[int, float] = {}
    rows: dict[str | int, int] = {node.name: row for row, node in enumerate(journal.cluster.nodes)}
    now_s = 0.0

    def leave(job: int) -> None:
        if job in since:
            begun_s, placement = since.pop(job)
            found.append((job, begun_s, working.pop(job, now_s), now_s, placement))

    for record in journal.records:
        if isinstance(record, Event):
            now_s = record.at_s
        if isinstance(record, (Start, Resume)):
            since[record.job] = (now_s, record.placement)
        elif isinstance(record, JobStarted):
            working[record.job] = now_s
        elif isinstance(record, (JobFinished, Suspend, JobCancelled, JobFailed)):
            leave(record.job)
        elif isinstance(record, (Migrate, Resize)):
            leave(record.job)
            since[record.job] = (now_s, record.placement)
        elif isinstance(record, Rearrange):
            for job, placement in record.moves:
                leave(job)
                since[job] = (now_s, placement)
        elif isinstance(record, NodeAdded):
            rows.setdefault(record.node.name, len(rows))
        elif isinstance(record, (NodeLost, NodeRemoved)):
            row = rows.get(record.node, record.node)
            for job in [job for job, (_, placement) in since.items() if row in placement.nodes]:
                leave(job)
    for job in list(since):
        leave(job)
    return found


def node_changes(journal: Journal) -> list[NodeAdded | NodeChanged | NodeRemoved]:
    """The nodes that joined, changed and were removed."""
    return [record for record in journal.records if isinstance(record, (NodeAdded, NodeChanged, NodeRemoved))]


def offered(journal: Journal, from_s: float, to_s: float) -> tuple[float, float]:
    """GPU time and price, in USD, of the nodes that were in the cluster between two times; lost ones count too."""
    there = {node.name: node for node in journal.cluster.nodes}
    gpu_s = usd = 0.0
    since_s = from_s
    for record in (*node_changes(journal), NodeRemoved(to_s, "")):  # closes the last interval
        now_s = min(max(record.at_s, since_s), to_s)
        gpu_s += sum(node.gpus for node in there.values()) * (now_s - since_s)
        usd += sum(node.usd_per_hour for node in there.values()) * (now_s - since_s) / 3600
        since_s = now_s
        if isinstance(record, NodeRemoved):
            there.pop(record.node, None)
        elif isinstance(record, NodeAdded) or record.node.name in there:
            there[record.node.name] = record.node
    return gpu_s, usd


def stays_frame(journal: Journal, state: ClusterState) -> pl.DataFrame:
    """Stays as a table, one row per job and node, for Gantt charts."""
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
    """At every change: jobs waiting, jobs that have GPUs, GPUs allocated, GPUs used."""
    changes: list[tuple[float, int, int, float, float]] = []
    for _, begun_s, ended_s, placement in stays(journal):
        gpus = placement.gpus * placement.milli / WHOLE_GPU_MILLI
        changes += [(begun_s, 0, 1, gpus, 0.0), (ended_s, 0, -1, -gpus, 0.0)]
    for begun_s, ended_s, busy in uses(journal, state):
        changes += [(begun_s, 0, 0, 0.0, busy), (ended_s, 0, 0, 0.0, -busy)]
    ends_s = state.jobs.finish_s[: len(state.jobs)].tolist()
    changes += [(at_s, 1, 0, 0.0, 0.0) for at_s in state.jobs.submit_s[: len(state.jobs)].tolist()]
    changes += [(at_s, -1, 0, 0.0, 0.0) for at_s in ends_s if not math.isnan(at_s)]
    schema = {"at_s": pl.Float64, "active": pl.Int64, "running": pl.Int64, "gpus_allocated": pl.Float64,
              "gpus_used": pl.Float64}  # fmt: skip
    frame = pl.DataFrame(changes, schema=schema, orient="row")
    summed = frame.group_by("at_s").sum().sort("at_s").with_columns(pl.exclude("at_s").cum_sum())
    return summed.with_columns(waiting=pl.col("active") - pl.col("running")).drop("active")
