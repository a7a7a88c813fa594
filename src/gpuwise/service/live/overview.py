"""The cluster and the line at a glance: nodes, what is measured on them, the queue, the service itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpuwise.core.cluster.capacity import Claim
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import JobRecord
from gpuwise.core.spec import NodeSpec, Sharing
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.machine import Reading, Where
from gpuwise.live.controller import Controller
from gpuwise.live.intake import JobIntake
from gpuwise.live.local.time_slices import Switching
from gpuwise.service.live.access import Caller
from gpuwise.service.live.estimates import Estimate
from gpuwise.service.live.refusals import NoAnswerError
from gpuwise.service.live.threads import Readers, answer

ESTIMATE_PATIENCE_S = 5.0
HEALTH_PATIENCE_S = 3.0

Readings = Callable[[], Mapping[Where, Reading]]
"""Measures every device."""


class Lookahead(Protocol):
    """Says when jobs will start and end; may take a while."""

    def queue(self) -> Mapping[str, Estimate]:
        """The estimates of jobs that have not ended."""
        ...


@dataclass(frozen=True, slots=True)
class Stay:
    """A job on a device."""

    uid: str
    frac: float
    """Its part of the device."""


@dataclass(slots=True)
class DeviceState:
    """A device and who is on it."""

    index: int
    up: bool
    memory_bytes: float
    id: str = ""
    claimed: bool = False
    """Whether others than gpuwise compute there."""
    claimed_memory_bytes: float = 0.0
    sharing: str = "exclusive"
    jobs: list[Stay] = field(default_factory=list)

    @property
    def free_frac(self) -> float:
        """What part of it is free."""
        return max(0.0, round(1.0 - sum(stay.frac for stay in self.jobs), 6)) if self.up and not self.claimed else 0.0


@dataclass(slots=True)
class NodeState:
    """A node as it is now."""

    row: int
    spec: NodeSpec
    up: bool
    free_cpus: float
    free_memory_bytes: float
    devices: list[DeviceState]
    claimed_cpus: float = 0.0
    claimed_memory_bytes: float = 0.0
    """What others than running jobs use."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A job that has not ended, with what is believed of its future."""

    job: JobRecord
    gpus: int | None
    """GPUs that it holds; None if it holds none."""
    position: int | None
    why: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while the service runs."""

    placement: str = ""
    """The name of the placement in use."""
    store: str = ""
    """What the store is, without passwords."""
    notes: tuple[str, ...] = ()
    """What a user should know about the machine."""
    started_at: float = field(default_factory=time.time)


class Overview:
    """What everybody may see of the cluster, and what a caller may see of the line."""

    def __init__(
        self,
        controller: Controller,
        readers: Readers,
        thinkers: Readers,
        lookahead: Lookahead,
        readings: Readings = dict,
        about: About | None = None,
        switching: Callable[[], Switching] = Switching,
    ) -> None:
        self.about = about or About()
        self.switching = switching
        """What switching between jobs that take turns has cost since the service began."""
        self._controller = controller
        self._readers = readers
        self._thinkers = thinkers
        self._fine_until = 0.0
        self._lookahead = lookahead
        self._readings = readings

    async def nodes(self) -> list[NodeState]:
        """Every node with its devices and who is on them."""
        return await answer(self._controller.ask(lambda intake: _nodes(intake.engine.state)))

    async def readings(self) -> Mapping[Where, Reading]:
        """What every device does now."""
        return await self._readers.run(self._readings)

    def visible(self, caller: Caller) -> list[JobRecord]:
        """The caller's jobs that have not ended; an administrator's are all."""
        return [record for record in self._controller.live_records() if caller.principal.may_see(record)]

    async def queue(self, caller: Caller, limit: int) -> list[Queued]:
        """Jobs that have not ended: those on GPUs, then those in line, then those that are held."""
        mine = {record.uid: record for record in self.visible(caller)}
        line = await answer(self._controller.ask(lambda intake: _line(intake, mine.keys(), limit)))
        estimates, unknown = await self._estimates(), Estimate()
        return [
            Queued(self._controller.live(uid) or mine[uid], gpus, position, why, estimates.get(uid, unknown))
            for uid, gpus, position, why in line
        ]

    async def _estimates(self) -> Mapping[str, Estimate]:
        """None at all if they take too long: a line without estimates is better than no line."""
        try:
            return await self._thinkers.run(self._lookahead.queue, patience_s=ESTIMATE_PATIENCE_S)
        except NoAnswerError:
            return {}

    async def queue_usage(self) -> Mapping[str, tuple[float, int]]:
        """Of each queue with jobs: GPUs held or in line, and jobs."""
        return await answer(self._controller.ask(lambda intake: dict(intake.admission.usage())))

    def policy(self) -> str:
        """The policy that decides."""
        return self._controller.engine.policy.name

    def trouble(self) -> str:
        """What is wrong now, as far as the controller knows; empty is nothing."""
        return self._controller.trouble

    async def is_well(self) -> bool:
        """Whether the controller has no trouble and answers; asked at most once a second."""
        if self._controller.trouble:
            return False
        if time.monotonic() < self._fine_until:
            return True
        try:
            await answer(self._controller.ask(lambda _: None), HEALTH_PATIENCE_S)
        except GpuwiseError:
            return False
        self._fine_until = time.monotonic() + 1.0
        return True

    def counts(self) -> dict[str, int]:
        """How many jobs that have not ended there are of each status."""
        return dict(Counter(record.status for record in self._controller.live_records()))


def _nodes(state: ClusterState) -> list[NodeState]:
    found = {row: _node(state, row, spec) for row, spec in state.nodes.present()}
    for job, placement in state.placed.items():
        _put(found, state.jobs.ids[job], placement)
    return list(found.values())


def _node(state: ClusterState, row: int, spec: NodeSpec) -> NodeState:
    capacity = state.capacity
    up, claim = row not in capacity.down, capacity.claims.get(row, Claim())
    used = {device: (memory, exclusive) for device, memory, exclusive in claim.devices}
    devices = [
        DeviceState(
            index,
            up and not capacity.lost.get(row, 0) >> index & 1,
            spec.gpu_memory_bytes,
            id=spec.device_id(index),
            claimed=used.get(index, (0.0, False))[1],
            claimed_memory_bytes=used.get(index, (0.0, False))[0],
        )
        for index in range(spec.gpus)
    ]
    cpus, memory = float(capacity.free_cpus[row]), float(capacity.free_memory[row])
    return NodeState(row, spec, up, cpus, memory, devices, claim.cpus, claim.memory_bytes)


def _put(nodes: dict[int, NodeState], uid: str, placement: Placement) -> None:
    for node, index in placement.devices():
        device = nodes[node].devices[index]
        device.jobs.append(Stay(uid, placement.milli / WHOLE_GPU_MILLI))
        if placement.sharing is not Sharing.EXCLUSIVE:
            device.sharing = placement.sharing.name.lower()


def _line(intake: JobIntake, uids: Collection[str], limit: int) -> list[tuple[str, int | None, int | None, str]]:
    """Ids with their GPUs, their place in line and why they wait, at most ``limit`` of those in ``uids``."""
    state, ids = intake.engine.state, intake.engine.state.jobs.ids
    found: list[tuple[str, int | None, int | None, str]] = [
        (ids[row], placement.gpus, None, "") for row, placement in state.placed.items() if ids[row] in uids
    ]
    for place, row in enumerate(state.waiting, start=1):
        if len(found) >= limit:
            break
        if ids[row] in uids:
            found.append((ids[row], None, place, _why(intake, row)))
    listed = {uid for uid, *_ in found}
    for uid in uids:
        if len(found) >= limit:
            break
        if uid not in listed and uid in intake.admission:
            found.append((uid, None, None, _why(intake, state.jobs.row_of[uid])))
    return found[:limit]


def _why(intake: JobIntake, row: int) -> str:
    reason = intake.reason(intake.engine.state.jobs.ids[row])
    return "" if reason is None else str(reason)
