"""What shall be done: imperative, frozen; and the decision that carries it, with its reasons."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.job.needs import Sharing
from gpuwise.core.quick import quick
from gpuwise.core.units import MINUTE_S, WHOLE_GPU_MILLI, format_duration


class Grant(NamedTuple):
    """The devices of one node that a job gets, as a bit mask; for MIG, where on the device its slice starts."""

    node: int
    devices: int
    slice_start: int = -1


class MigSlice(NamedTuple):
    """One hardware slice of a partitioned GPU."""

    profile: str
    start: int
    milli: int
    memory_bytes: float


class TaskGrant(NamedTuple):
    """Tasks of one role of a job on one node."""

    role: str
    node: int
    number: int


class Placement(NamedTuple):
    """Where a job runs: its grants, how it shares them, and what part of each GPU it has."""

    grants: tuple[Grant, ...]
    sharing: Sharing = Sharing.EXCLUSIVE
    milli: int = WHOLE_GPU_MILLI
    quantum_s: float = 0.0
    """How long its turns are if it is time-sliced; 0 leaves that to the executor."""
    tasks: tuple[TaskGrant, ...] = ()
    """How many tasks of which role are where; empty for a plain job. A role's GPUs are among the grants."""

    @property
    def gpus(self) -> int:
        """Number of devices."""
        grants = self.grants
        if len(grants) == 1:
            return grants[0].devices.bit_count()
        return sum([grant.devices.bit_count() for grant in grants])

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes it spans, those of tasks without GPUs included."""
        if self.tasks:
            return tuple(dict.fromkeys([*(grant.node for grant in self.grants), *(task.node for task in self.tasks)]))
        return tuple(grant.node for grant in self.grants)

    def devices(self) -> list[tuple[int, int]]:
        """Every (node, device) it touches."""
        return [
            (grant.node, device)
            for grant in self.grants
            for device in range(grant.devices.bit_length())
            if grant.devices >> device & 1
        ]


@dataclass(frozen=True, slots=True)
class Command:
    """Something an executor is asked to do."""


@quick
@dataclass(frozen=True, slots=True)
class Start(Command):
    """Run a job that has not run yet."""

    job: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class Resume(Command):
    """Run a suspended job on from where it was."""

    job: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class Suspend(Command):
    """Save a running job and take its GPUs."""

    job: int


@dataclass(frozen=True, slots=True)
class Stop(Command):
    """End a job that its user cancelled."""

    job: int


@dataclass(frozen=True, slots=True)
class Resize(Command):
    """Run an elastic job on with another number of GPUs."""

    job: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class Migrate(Command):
    """Run a job on elsewhere with as many GPUs as before."""

    job: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class Rearrange(Command):
    """Migrate several jobs at once, so that they may change places with each other."""

    moves: tuple[tuple[int, Placement], ...]


@dataclass(frozen=True, slots=True)
class Repartition(Command):
    """Partition an empty GPU into MIG slices; no slices makes it whole again."""

    node: int
    device: int
    slices: tuple[MigSlice, ...]


@dataclass(frozen=True, slots=True)
class Provision(Command):
    """Bring a new node into the cluster."""

    node: NodeSpec


@dataclass(frozen=True, slots=True)
class Release(Command):
    """Remove an empty node from the cluster."""

    node: int


COMMAND_TYPES: tuple[type[Command], ...] = (
    Start, Resume, Suspend, Stop, Resize, Migrate, Rearrange, Repartition, Provision, Release,
)  # fmt: skip


class Why(enum.Enum):
    """The codes of the reasons for which a job waits; the text is filled with a reason's numbers."""

    NO_ROOM = (
        "needs {gpus} GPU{plural}{where}; {idle} of {total} such GPUs are idle, at most {largest} on one node{drained}"
    )
    NO_SHARE = "needs {percent:.0f}% of one GPU; no GPU has that much left that it may share{drained}"
    NO_HOST_ROOM = "GPUs are idle, but no node with them has {cpus:g} CPUs and {memory} of memory left{drained}"
    NO_TASK_ROOM = (
        "needs {count:g} × {role}, each with {cpus:g} CPUs and {memory} of memory; there is room for {room:g} of them"
    )
    NEVER_FITS = "cannot run here: needs {gpus} GPU{plural}{where}, and the cluster has {total} such GPUs"
    NO_SUCH_NODE = "cannot run here now: requires nodes with {labels}; none of the {nodes} nodes here has that"
    BEHIND = "waits behind job {ahead}, which is first in the queue and needs {gpus} GPU{plural}"
    RESERVED = "would delay job {ahead}, which has a reservation {when}"
    OUTRANKED = "needs {gpus} GPU{plural}{where}; the jobs that have them rank higher under this policy{drained}"
    GAIN = "needs {gpus} GPU{plural}; is {gain:.2f} times as fast on {new} as on {old}; other jobs rank higher on both"
    UNFORESEEN = "needs {gpus} GPU{plural}; its speed could not be predicted, so it gets its GPUs as a usual job would"
    NO_SPEED = "is predicted to make no progress on any GPU type here, so it is not started"
    NO_PLACE = (
        "needs {percent:.0f}% of a GPU{where}; none is idle, and none with fewer than {most:g} jobs has as much left"
    )
    PROFILE = "waits for an idle GPU{where}, on which it is profiled alone for {profile_s:g} s before it may share one"
    NO_GAIN = "needs a GPU{where}; {idle} of {total} are idle, and sharing one would now cost more time than it saves"
    ALONE = (
        "needs a GPU{where} of its own ({idle} of {total} are idle): how it runs beside others could not be predicted"
    )
    NO_SLICE = (
        "waits for a slice of a GPU{where} on which it fits and is predicted to make progress; {free:g} of {slices:g} "
        "slices are free"
    )
    BETTER_LATER = "is predicted to do better with a GPU{where} of its own, which is to be free in {free_s:.0f} s"
    NEXT_ROUND = "is looked at when the next round begins, {when}"
    NOT_CHOSEN = "could run, but the policy did not choose it"
    STOPPING = "is saving its state before it leaves its GPUs"
    BACK_OFF = "its start was refused {often}{cause}; it is tried again {when}"
    HELD = "was put on hold by its user until it is resumed"
    AFTER = "waits for job {ahead}, which has not {status} yet"
    BEGIN = "is to start {when} at the earliest, as its user asked"
    ARRAY = "waits for other tasks of its array, of which {limit:g} may run at one time"
    QUOTA = "queue {queue} may use {limit:g} GPUs; its jobs have or are queued for {used:g}, this one needs {gpus:g}"
    SHARE = "queue {queue} is at its fair share, {used:g} GPUs allocated or queued for, while other queues wait too"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: a code, and the numbers in it."""

    code: Why
    numbers: Mapping[str, float | str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.code.value.format(**{**self.numbers, **self._words()})

    def _words(self) -> dict[str, str]:
        """What of the texts depends on numbers that a reason may have."""
        numbers: Mapping[str, Any] = self.numbers
        in_s, times, drained = numbers.get("in_s"), numbers.get("times"), numbers.get("drained", 0)
        on_drained = "1 GPU is on a drained node" if drained == 1 else f"{drained} GPUs are on drained nodes"
        return {
            "plural": "" if numbers.get("gpus") == 1 else "s",
            "when": f"at {numbers.get('at_s', 0):.0f} s" if in_s is None else f"in {_duration(in_s)}",
            "often": "once" if times == 1 else f"{times} times in a row",
            "cause": f" ({numbers['cause']})" if numbers.get("cause") else "",
            "drained": f"; {on_drained}" if drained else "",
        }


def _duration(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < MINUTE_S else format_duration(seconds)


Explain = Callable[[int], Reason]


def not_chosen(job: int) -> Reason:
    """The reason given where a policy gives none."""
    return Reason(Why.NOT_CHOSEN)


@quick
@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decided: commands in order, when to ask it again, and why each waiting job waits."""

    commands: tuple[Command, ...] = ()
    wake_at: float | None = None
    reasons: Explain = not_chosen
    """Called with a waiting job; answers are made when asked for, since most are never read."""
    notes: tuple[tuple[str, int, float], ...] = ()
    """(column, job, value): what the policy writes to columns of its own."""


NOTHING = Decision()
