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
class JobHeld(Event):
    """A job may not be placed for now, for a reason outside the policy; one that holds GPUs is to leave them."""

    job: int
    cause: str


@dataclass(frozen=True, slots=True)
class JobReleased(Event):
    """A job that was held may be placed again."""

    job: int


@dataclass(frozen=True, slots=True)
class JobRevised(Event):
    """Something better is known of a job than what was declared; None leaves it as it was."""

    job: int
    duration_s: float | None = None
    steps: float | None = None
    gpu_memory_bytes: float | None = None
    gpu_util_frac: float | None = None


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
class DeviceLost(Event):
    """One device of a node went away; its jobs are back in the queue with the steps their checkpoints kept."""

    node: int
    device: int
    interrupted: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class DeviceRestored(Event):
    """A lost device is back, empty."""

    node: int
    device: int


@dataclass(frozen=True, slots=True)
class WokeUp(Event):
    """The time a policy asked to be woken at has come."""


EVENT_TYPES: tuple[type[Event], ...] = (
    JobSubmitted, JobStarted, JobProgressed, JobSuspended, JobFinished, JobFailed, JobCancelled,
    JobHeld, JobReleased, JobRevised, NodeAdded, NodeLost, NodeRestored, DeviceLost, DeviceRestored, WokeUp,
)  # fmt: skip

PROFILE_S = 60.0
"""When a job has been alone on its GPUs for so long, what it uses of them is known (`JobRevised`)."""

CAPACITY_CHANGES: frozenset[type[Event]] = frozenset(EVENT_TYPES) - {JobStarted, JobProgressed}
"""The events after which another job may be able to start."""
