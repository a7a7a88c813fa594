"""A trace in memory: its jobs, where they came from and what did not become a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

import polars as pl

from gpuwise.sim.traces.errors import BadRow, count_reasons


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs in the canonical columns, sorted by submission, with the story of how they were read.

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


def _quantile(jobs: pl.DataFrame, share: float) -> float:
    return float(jobs.select(pl.col("duration_s").quantile(share, "linear")).item())


def _duration(seconds: float) -> str:
    for unit, length_s in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.1f} {unit}"
    return f"{seconds:,.0f} s"
