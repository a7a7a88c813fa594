"""What an executor tells beyond events: how attempts began, came along and ended."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwise.core.commands import Placement


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A job's process is running."""

    uid: str
    number: int
    at_s: float
    placement: Placement


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """A job's process is gone."""

    uid: str
    number: int
    at_s: float
    placement: Placement
    started_s: float
    outcome: str
    """succeeded, failed, out of memory, suspended, moved, cancelled or lost."""
    exit_code: int | None = None
    detail: str = ""
    peak_memory_bytes: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come, in its own words."""

    uid: str
    at_s: float
    step: float
    steps: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A job has a checkpoint."""

    uid: str
    at_s: float
    step: float


Report = AttemptStarted | AttemptEnded | Progress | Saved
