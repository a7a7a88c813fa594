"""Traces made from traces: more or less load, fewer jobs, or a larger cluster's worth of them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.trace import Trace


def scale_load(trace: Trace, factor: float) -> Trace:
    """The same jobs submitted ``factor`` times as fast; each keeps the time between submission and deadline."""
    if not 0 < factor < float("inf"):
        raise TraceError(f"a load cannot be scaled by {factor!r}; the factor is a number above 0")
    submit_s = pl.col("submit_s") / factor
    deadline_s = submit_s + (pl.col("deadline_s") - pl.col("submit_s"))
    return replace(trace, jobs=trace.jobs.with_columns(submit_s=submit_s, deadline_s=deadline_s))


def take(trace: Trace, jobs: int) -> Trace:
    """The first jobs to be submitted."""
    if jobs < 1:
        raise TraceError(f"cannot take {jobs} jobs; take 1 or more")
    return replace(trace, jobs=trace.jobs.head(jobs))


def prolong(trace: Trace, times: int) -> Trace:
    """The trace ``times`` times in turn: the same load for that many times as long.

    The first job of a turn comes as long after the last of the one before as jobs come apart on average. Copy k of job
    ``a`` is ``a#k``.
    """
    if times < 1:
        raise TraceError(f"cannot prolong a trace {times} times; prolong it 1 time or more")
    submit_s = trace.jobs["submit_s"]
    span_s = float(submit_s[-1] - submit_s[0])
    turn_s = span_s + span_s / max(len(submit_s) - 1, 1)
    turns = [
        trace.jobs.with_columns(
            pl.col("id") + f"#{turn}", pl.col("submit_s") + turn * turn_s, pl.col("deadline_s") + turn * turn_s
        )
        for turn in range(times)
    ]
    return replace(trace, jobs=pl.concat(turns))


def repeat(trace: Trace, times: int) -> Trace:
    """Every job ``times`` times, at the same moment: the same load on a cluster that many times as large.

    Copy k of job ``a`` is ``a#k``.
    """
    if times < 1:
        raise TraceError(f"cannot repeat a trace {times} times; repeat it 1 time or more")
    copies = [trace.jobs.with_columns(pl.col("id") + f"#{copy}") for copy in range(times)]
    return replace(trace, jobs=pl.concat(copies).sort("submit_s", maintain_order=True))
