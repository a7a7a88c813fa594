"""What is wanted of the world: which attempt of which job is to be where, and what is intended with it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, final

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import MigSlice, Placement


class Intent(enum.IntEnum):
    """What shall become of an attempt."""

    RUN = 0
    SUSPEND = 1
    """Leave the devices and keep what was done."""
    STOP = 2
    """Be gone; the job has ended."""


class Where(NamedTuple):
    """Devices of one node, by the ids their executor gave them; for MIG, where on the device the slice starts."""

    node: str
    devices: tuple[str, ...]
    slice_start: int = -1


@final
class Assignment(NamedTuple):
    """What is wanted of one attempt of a job.

    An attempt is the time from one allocation of GPUs to the next: starting, resuming, moving and resizing a job each
    begin a new one, numbered from 1. What is not mentioned any more in a complete list is to be gone.
    """

    job: str
    attempt: int
    intent: Intent
    placement: Placement | None = None
    """Its devices by rows of the engine's tables, sharing mode and share; None unless it is to run."""
    where: tuple[Where, ...] = ()
    """The same devices by name, for executors that do not share these tables (`Engine.addressed` fills it in)."""
    held_since_s: float = 0.0
    """When it would have got GPUs if it had had them without a break up to now: a time limit counts from here."""
    started: bool = False
    """Whether it was seen to run: if nothing is left of it, it is lost, and not to be started."""
    tasks: tuple[tuple[str, str, int], ...] = ()
    """Role, node and number of its tasks there, of a job with roles that is to run."""


@dataclass(frozen=True, slots=True)
class DeviceCut:
    """How a device is to be partitioned with MIG; no slices is whole. It is done when nothing runs on it any more."""

    node: str
    device: str
    slices: tuple[MigSlice, ...]
    at: tuple[int, int]
    """The device by rows of the engine's tables."""


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A node that is to join the cluster, or one that is not needed any more."""

    node: NodeSpec
    wanted: bool


Desired = Assignment | DeviceCut | NodeRequest
