"""A job counts its own steps; the engine counts those that were declared, or seconds. From one to the other."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwise.core.jobs import JobTable
from gpuwise.live.local.attempts import finite, read_json, text

NEWS_FRAC = 0.02
"""The part of all steps by which a report must differ from what is believed to be news."""


def scaled(step: float, steps: float | None, total: float, declared: bool) -> float | None:
    """A job's own step in the engine's steps; None if the job does not say how many there are and nobody else did."""
    if steps is not None and steps > 0:
        return min(max(step / steps, 0.0), 1.0) * total
    return min(max(step, 0.0), total) if declared else None


def kept_steps(checkpoint: Path, total: float, declared: bool) -> float:
    """What a job's last checkpoint keeps, in the engine's steps."""
    latest = read_json(checkpoint / "latest.json")
    named = text(latest, "file")
    if named and ("/" in named or not os.path.exists(checkpoint / named)):  # false where it cannot be looked for
        return 0.0
    return scaled(finite(latest, "step"), finite(latest, "steps") or None, total, declared) or 0.0


def believed_steps(jobs: JobTable, row: int, now_s: float) -> float:
    """How far the engine thinks a job is."""
    passed_s = max(0.0, now_s - jobs.since_s.item(row))
    done = jobs.steps_done.item(row) + jobs.rate.item(row) * passed_s
    return float(min(done, jobs.steps.item(row)))
