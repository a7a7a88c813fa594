"""Readers of Tiresias' CSV and of two that grew out of it: Muri's, in milliseconds, and Chronus', with deadlines."""

from __future__ import annotations

import numpy as np
import polars as pl

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.rows import Mask, Numbers, Reading, Rows, read_rows
from gpuwise.sim.traces.schema import BATCH, CPUS, DURATION, GPUS, PRIORITY, STEPS, SUBMIT, NodeRow, Rule
from gpuwise.sim.traces.source import Source

TIRESIAS_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
MURI_COLUMNS = ("job_id", "num_gpu", "submit_time", "duration", "iteration_time", "resource_time_0")
CHRONUS_COLUMNS = ("job_id", "user", "num_gpu", "submit_time", "duration", "expect_time_list")
DEADLINE_AFTER = Rule("a time after submission of at least 0 s", low=0)
NODE_COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
COUNT = Rule("a whole number from 1", low=1, high=1e6, whole=True)
MEMORY = Rule("a number of GiB from 0", low=0)
MAX_NODES = 1_000_000
NEEDED = ("job_id", "num_gpu", "submit_time", "duration")


def read_tiresias(source: Source) -> Reading:
    """Tiresias: job_id, num_gpu, submit_time, iterations, model_name, duration, interval; times in seconds."""
    rows = read_rows(source)
    rows.require(NEEDED)
    duration_s = rows.number("duration", DURATION)
    return rows.finish(
        id_column="job_id",
        submit_s=rows.number("submit_time", SUBMIT),
        duration_s=duration_s,
        gpus=rows.number("num_gpu", GPUS),
        steps=_steps(rows),
        model=rows.text("model_name"),
    )


def read_muri(source: Source) -> Reading:
    """Muri: Tiresias' columns with times in milliseconds, and priority and batch_size, taken as that of each GPU.

    A job takes iterations × iteration_time, as in Muri's own simulator and on its testbed; ``duration``, which says
    otherwise for some jobs, counts only where those are not given. Stage times (resource_time_*) are not read.
    """
    rows = read_rows(source)
    rows.require(NEEDED)
    duration_s = rows.number("duration", DURATION) / 1000
    if "iterations" in rows and "iteration_time" in rows:
        duration_s = rows.number("iterations", STEPS) * rows.number("iteration_time", DURATION) / 1000
    return rows.finish(
        id_column="job_id",
        submit_s=rows.number("submit_time", SUBMIT) / 1000,
        duration_s=duration_s,
        gpus=rows.number("num_gpu", GPUS),
        steps=_steps(rows),
        model=rows.text("model_name"),
        batch_per_gpu=rows.number("batch_size", BATCH, default=0),
        priority=rows.number("priority", PRIORITY, default=0),
    )


def read_chronus(source: Source) -> Reading:
    """Chronus: Tiresias' columns with user, and deadlines in ``expect_time_list``, counted from submission.

    Of several expected times, joined by "-", the first is the deadline. Best-effort jobs have none. Jobs that ask for
    no GPU are left out, as Chronus itself does.
    """
    rows = read_rows(source)
    rows.require((*NEEDED, "expect_time_list"))
    gpus = rows.number("num_gpu", GPUS)
    rows.leave_out(gpus == 0, "jobs that ask for no GPU")
    submit_s = rows.number("submit_time", SUBMIT)
    duration_s = rows.number("duration", DURATION)
    return rows.finish(
        id_column="job_id",
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        deadline_s=submit_s + _expected_after_s(rows),
        tenant=rows.text("user"),
        steps=_steps(rows),
        model=rows.text("model_name"),
    )


def _steps(rows: Rows) -> Numbers:
    """The iterations, where the file has them."""
    if "iterations" not in rows:
        return np.full(len(rows), np.nan)
    return rows.number("iterations", STEPS)


def _expected_after_s(rows: Rows) -> Numbers:
    best_effort: Mask = (rows.text("best_effort") == "1").to_numpy()
    first = rows.text("expect_time_list").str.extract(r"^(\d+(?:\.\d+)?)(?:-\d+(?:\.\d+)?)*$").cast(pl.Float64)
    rows.flag(first.is_null().to_numpy() & ~best_effort, "expect_time_list", f"is not {DEADLINE_AFTER.expected}")
    return np.where(best_effort, np.inf, first.fill_null(np.inf).to_numpy())


def read_spec_nodes(rows: Rows) -> list[NodeRow]:
    """The nodes of a cluster spec of Tiresias or Muri, memory in GiB."""
    counts = rows.number("num_switch", COUNT) * rows.number("num_node_p_switch", COUNT)
    gpus = rows.number("num_gpu_p_node", GPUS)
    cpus = rows.number("num_cpu_p_node", CPUS)
    memory_bytes = rows.number("mem_p_node", MEMORY) * 2**30
    rows.refuse_bad()
    if counts.sum() > MAX_NODES:
        raise TraceError(f"{rows.file}: {counts.sum():,.0f} nodes; at most {MAX_NODES:,} can be read")
    nodes: list[NodeRow] = []
    for row, count in enumerate(counts.astype(np.int64).tolist()):
        first = len(nodes)
        fields = ("", int(gpus[row]), float(cpus[row]), float(memory_bytes[row]))
        nodes.extend(NodeRow(f"node-{first + index}", *fields) for index in range(count))
    return nodes
