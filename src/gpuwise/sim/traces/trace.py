"""A trace in memory: its jobs, how they were read, and the same jobs at another load or in other numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape

import polars as pl

from gpuwise.sim.traces.errors import BadRow, TraceError, count_reasons


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs in the canonical columns, sorted by submission, with what was left out when they were read.

    ``skipped`` are rows that were wrong and left out on request; ``left_out`` counts, by reason, rows that the
    format's own rule leaves out (jobs that never ran, steps of a job), which are normal and no error.
    """

    jobs: pl.DataFrame
    name: str
    format: str
    skipped: tuple[BadRow, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.jobs.height

    def __repr__(self) -> str:
        return f"<Trace {self.name!r} ({self.format}): {len(self):,} jobs>"

    @property
    def gpu_seconds(self) -> float:
        """The work in the trace: GPUs × share of each × duration, summed over jobs."""
        return float(self.jobs.select((pl.col("gpus") * pl.col("gpu_frac") * pl.col("duration_s")).sum()).item())

    def summary(self) -> str:
        """What is in the trace, in a few lines of text."""
        jobs = self.jobs
        span_s = float(jobs["submit_s"][-1] - jobs["submit_s"][0])
        least, most = jobs.select(least=pl.col("gpus").min(), most=pl.col("gpus").max()).row(0)
        lines = [
            f"{self.name} ({self.format}): {len(self):,} jobs submitted over {_duration(span_s)}",
            f"GPUs per job {least} to {most}, {self.gpu_seconds / 3600:,.1f} GPU-hours in all",
            f"duration median {_duration(_quantile(jobs, 0.5))}, p90 {_duration(_quantile(jobs, 0.9))}",
        ]
        if self.left_out:
            counted = "; ".join(f"{count:,} {why}" for why, count in self.left_out.items())
            lines.append(f"left out by the format's rule: {counted}")
        if self.skipped:
            lines.append(f"{len(self.skipped):,} bad rows skipped: {count_reasons(self.skipped)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>{self.jobs.head(10)._repr_html_()}"


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
    """The trace ``times`` times in succession: the same load for that many times as long.

    Successive copies are apart by the mean time between jobs. Copy k of job ``a`` is ``a#k``.
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


def _quantile(jobs: pl.DataFrame, share: float) -> float:
    return float(jobs.select(pl.col("duration_s").quantile(share, "linear")).item())


def _duration(seconds: float) -> str:
    for unit, length_s in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.1f} {unit}"
    return f"{seconds:,.0f} s"
