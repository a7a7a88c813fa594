"""What happened: past tense, frozen, with the time it happened."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwise.core.spec import NodeSpec


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``at_s``."""

    at_s: float


@dataclass(frozen=True, slots=True)
class JobSubmitted(Event):
    """A declared job asks to be run."""

    job: int


@dataclass(frozen=True, slots=True)
class JobStarted(Event):
    """A job takes its first step after a start, resume, move or resize."""

    job: int


@dataclass(frozen=True, slots=True)
class JobProgressed(Event):
    """A running job reports how far it is."""

    job: int
    steps_done: float


@dataclass(frozen=True, slots=True)
class JobSuspended(Event):
    """A job has saved its state and left its GPUs."""

    job: int
    steps_done: float


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """A job has done all its steps."""

    job: int


@dataclass(frozen=True, slots=True)
class JobFailed(Event):
    """A job ended on an error; with ``will_retry`` it goes back to the queue with the steps it kept."""

    job: int
    steps_kept: float
    cause: str
    will_retry: bool


@dataclass(frozen=True, slots=True)
class JobCancelled(Event):
    """A user took a job back."""

    job: int


@dataclass(frozen=True, slots=True)
class NodeAdded(Event):
    """A node joined the cluster."""

    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeLost(Event):
    """A node went away; its jobs are back in the queue with the steps their checkpoints kept."""

    node: int
    interrupted: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class NodeRestored(Event):
    """A lost node is back, empty."""

    node: int


@dataclass(frozen=True, slots=True)
class WokeUp(Event):
    """The time a policy asked to be woken at has come."""


EVENT_TYPES: tuple[type[Event], ...] = (
    JobSubmitted, JobStarted, JobProgressed, JobSuspended, JobFinished, JobFailed, JobCancelled,
    NodeAdded, NodeLost, NodeRestored, WokeUp,
)  # fmt: skip

CAPACITY_CHANGES: frozenset[type[Event]] = frozenset(
    (JobSubmitted, JobSuspended, JobFinished, JobFailed, JobCancelled, NodeAdded, NodeLost, NodeRestored, WokeUp)
)
"""The events after which another job may be able to start."""
