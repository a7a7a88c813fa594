"""What happened: past tense, frozen, with the time it happened."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.job.needs import Source
from gpuwise.core.quick import quick


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``at_s``."""

    at_s: float


@quick
@dataclass(frozen=True, slots=True)
class JobSubmitted(Event):
    """A declared job asks to be run."""

    job: int


@quick
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


@quick
@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """A job has done all its steps."""

    job: int


@dataclass(frozen=True, slots=True)
class JobFailed(Event):
    """An attempt failed; with ``will_retry`` its job is requeued with the steps it kept."""

    job: int
    steps_kept: float
    cause: str
    """For people."""
    will_retry: bool
    kind: str = "error"
    """A `Cause`."""


@dataclass(frozen=True, slots=True)
class StartRefused(Event):
    """The executor refused to start a job; it is in the queue again from ``until_s`` on."""

    job: int
    cause: str
    """For people."""
    until_s: float
    avoid: tuple[str, ...] = ()
    """Nodes on which it is not tried again soon."""


@dataclass(frozen=True, slots=True)
class BackOffEnded(Event):
    """A job whose start was refused may be tried again; the second time, also on the nodes that refused it."""

    job: int


@dataclass(frozen=True, slots=True)
class JobCancelled(Event):
    """A user cancelled a job."""

    job: int


@dataclass(frozen=True, slots=True)
class JobHeld(Event):
    """A job was put on hold, for a reason outside the policy; if it has GPUs, it is to leave them."""

    job: int
    cause: str


@dataclass(frozen=True, slots=True)
class JobReleased(Event):
    """A job that was on hold may be placed again."""

    job: int


@dataclass(frozen=True, slots=True)
class JobRevised(Event):
    """Something else is known of a job than what was declared, or its user wants it; None leaves it as it was."""

    job: int
    duration_s: float | None = None
    steps: float | None = None
    gpu_memory_bytes: float | None = None
    gpu_util_frac: float | None = None
    duration_low_s: float | None = None
    duration_high_s: float | None = None
    """The interval of ``duration_s``; None is not known."""
    source: Source = Source.OBSERVED
    """Where what is revised comes from."""
    priority: int | None = None
    deadline_s: float | None = None
    """What its user wants instead; infinity is no deadline."""


@dataclass(frozen=True, slots=True)
class JobNoted(Event):
    """A policy wrote to a column of its own."""

    job: int
    column: str
    value: float


@dataclass(frozen=True, slots=True)
class NodeEvent(Event):
    """Something that happened to a node. It is named by its name, or by its row in journals of earlier versions."""


@dataclass(frozen=True, slots=True)
class NodeAdded(NodeEvent):
    """A node joined the cluster, or is known to be in it; under another unique id it is another machine."""

    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeChanged(NodeEvent):
    """A node has other devices, capacity or labels than before, or takes new jobs or none; unknown nodes stay so."""

    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """A node left the cluster for good; its jobs are requeued with the steps their checkpoints kept."""

    node: str


@dataclass(frozen=True, slots=True)
class ReleaseRefused(NodeEvent):
    """A node that is not needed any more cannot be removed; it is in service again."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeLost(NodeEvent):
    """A node was lost; its jobs are requeued with the steps their checkpoints kept."""

    node: str | int
    interrupted: tuple[tuple[int, float], ...] = ()
    """Jobs whose kept steps are known better than by what they last reported as saved."""


@dataclass(frozen=True, slots=True)
class NodeRestored(NodeEvent):
    """A lost node is back, empty."""

    node: str | int


@dataclass(frozen=True, slots=True)
class DeviceLost(NodeEvent):
    """One device of a node was lost; its jobs are requeued with the steps their checkpoints kept."""

    node: str | int
    device: str | int
    """Its id, or its index in journals of earlier versions."""
    interrupted: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRestored(NodeEvent):
    """A lost device is back, empty."""

    node: str | int
    device: str | int


@dataclass(frozen=True, slots=True)
class DevicesClaimed(NodeEvent):
    """What others than running jobs use of a node now: all of it, so that to report it again changes nothing."""

    node: str
    devices: tuple[tuple[str, float, bool], ...] = ()
    """Of each device in use: its id, the memory used in bytes, and whether another process computes there."""
    cpus: float = 0.0
    memory_bytes: float = 0.0
    parked: tuple[tuple[str, str, float], ...] = ()
    """Which of this memory is kept by parked jobs: job, device id and bytes. It does not count against its own job."""


@dataclass(frozen=True, slots=True)
class WokeUp(Event):
    """It is the time at which a policy asked to be woken."""


EVENT_TYPES: tuple[type[Event], ...] = (
    JobSubmitted, JobStarted, JobProgressed, JobSuspended, JobFinished, JobFailed, StartRefused, BackOffEnded,
    JobCancelled, JobHeld, JobReleased, JobRevised, JobNoted, NodeAdded, NodeChanged, NodeRemoved, ReleaseRefused,
    NodeLost, NodeRestored, DeviceLost, DeviceRestored, DevicesClaimed, WokeUp,
)  # fmt: skip

PROFILE_S = 60.0
"""How long a job must be alone on its GPUs until what it uses of them is known (`JobRevised`)."""

CAPACITY_CHANGES: frozenset[type[Event]] = frozenset(EVENT_TYPES) - {JobStarted, JobProgressed, JobNoted}
"""The events after which another job may be able to start."""
