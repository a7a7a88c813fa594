"""The cluster and the queue at a glance: nodes, what is measured on them, waiting jobs, the service itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpuwise.core.cluster.capacity import Claim
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.records import JobRecord
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.machine import Reading, Where
from gpuwise.live.controller import Controller
from gpuwise.live.intake import JobIntake
from gpuwise.live.local.time_slices import Switching
from gpuwise.service.live.access import Caller
from gpuwise.service.live.errors import NoAnswerError
from gpuwise.service.live.estimates import NONE, Estimate, Estimates, QueueEstimates
from gpuwise.service.live.threads import Shared, WorkerPool, result_of

ESTIMATE_TIMEOUT_S = 5.0
HEALTH_TIMEOUT_S = 3.0
READINGS_VALID_S = 1.0

Readings = Callable[[], Mapping[Where, Reading]]
"""Measures every device."""


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A job on a device."""

    uid: str
    frac: float
    """Its share of the device."""


@dataclass(slots=True)
class DeviceState:
    """A device and the jobs on it."""

    index: int
    up: bool
    memory_bytes: float
    id: str = ""
    claimed: bool = False
    """Whether foreign processes compute there."""
    claimed_memory_bytes: float = 0.0
    sharing: str = "exclusive"
    jobs: list[DeviceShare] = field(default_factory=list)

    @property
    def free_frac(self) -> float:
        """The share of it that is free."""
        return max(0.0, round(1.0 - sum(share.frac for share in self.jobs), 6)) if self.up and not self.claimed else 0.0


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
    """What foreign processes use."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job that has not ended, with its estimates."""

    job: JobRecord
    gpus: int | None
    """GPUs allocated to it; None if there are none."""
    position: int | None
    why: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What does not change while the service runs."""

    placement: str
    """The name of the placement in use."""
    store: str
    """Where the store is, without passwords."""
    notes: tuple[str, ...]
    """What a user should know about the machine."""
    started_at: float
    account: str
    """The account that the service runs as."""
    jobs_run_as: str
    """The account that jobs run as; ``submitter`` is that of their user."""


class Overview:
    """What all users may see of the cluster and of the queue."""

    def __init__(
        self,
        controller: Controller,
        workers: WorkerPool,
        estimators: WorkerPool,
        estimates: Estimates,
        readings: Readings,
        info: ServiceInfo,
        switching: Callable[[], Switching],
    ) -> None:
        self.info = info
        self.switching = switching
        """What switching between jobs that share devices by time slices has cost since the service started."""
        self._controller = controller
        self._estimators = estimators
        self._estimates = estimates
        self._healthy_until = 0.0
        self._readings = Shared(lambda: workers.run(readings), READINGS_VALID_S)

    async def nodes(self) -> list[NodeState]:
        """Every node with its devices and the jobs on them."""
        return await result_of(self._controller.ask(lambda intake: _nodes(intake.engine.state)))

    async def readings(self) -> Mapping[Where, Reading]:
        """What was measured on every device within the last second, however many pages ask."""
        return await self._readings.get()

    def record(self, uid: str) -> JobRecord | None:
        """A job that has not ended; None if it has."""
        return self._controller.live(uid)

    def visible(self, caller: Caller) -> list[JobRecord]:
        """The caller's jobs that have not ended; an administrator's are all."""
        return [record for record in self._controller.live_records() if caller.principal.may_see(record)]

    async def queue(self, limit: int, user: str | None = None) -> list[QueueEntry]:
        """Jobs that have not ended: those on GPUs, then the queue, then those that may not start yet."""

        def at_once(intake: JobIntake) -> list[tuple[JobRecord, int | None, int | None, str]]:
            live = {uid: each for uid, each in intake.job_records.shown.items() if user in (None, each.user)}
            return [(live[uid], gpus, at, why) for uid, gpus, at, why in _entries(intake, live.keys(), limit)]

        entries = await result_of(self._controller.ask(at_once))
        estimates = await self._queue_estimates([record for record, *_ in entries])
        return [QueueEntry(record, gpus, at, why, estimates.of(record)) for record, gpus, at, why in entries]

    async def _queue_estimates(self, records: Sequence[JobRecord]) -> QueueEstimates:
        """Empty if they take too long: a queue without estimates is better than no answer."""
        try:
            return await self._estimators.run(self._estimates.queue, records, timeout_s=ESTIMATE_TIMEOUT_S)
        except NoAnswerError:
            return NONE

    async def queue_usage(self) -> Mapping[str, tuple[float, int]]:
        """Of each queue with jobs: GPUs allocated or waited for, and number of jobs."""
        return await result_of(self._controller.ask(lambda intake: dict(intake.admission.usage())))

    def policy(self) -> str:
        """The policy in use."""
        return self._controller.engine.policy.name

    def trouble(self) -> str:
        """What is wrong now, as far as the controller knows; empty is nothing."""
        left_out = self._controller.store.unreadable
        unread = f"records that cannot be read are left out: {', '.join(sorted(left_out)[:10])}" if left_out else ""
        return "; ".join(filter(None, (self._controller.trouble, unread)))

    async def is_healthy(self) -> bool:
        """Whether the controller has no trouble and answers; asked at most once a second."""
        if self._controller.trouble:
            return False
        if time.monotonic() < self._healthy_until:
            return True
        try:
            await result_of(self._controller.ask(lambda _: None), HEALTH_TIMEOUT_S)
        except GpuwiseError:
            return False
        self._healthy_until = time.monotonic() + 1.0
        return True

    def counts(self) -> dict[str, int]:
        """The number of jobs that have not ended, by status."""
        return dict(Counter(record.status for record in self._controller.live_records()))


def _nodes(state: ClusterState) -> list[NodeState]:
    found = {row: _node(state, row, spec) for row, spec in state.nodes.present()}
    for job, placement in state.placed.items():
        _add_job(found, state.jobs.ids[job], placement)
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


def _add_job(nodes: dict[int, NodeState], uid: str, placement: Placement) -> None:
    for node, index in placement.devices():
        device = nodes[node].devices[index]
        device.jobs.append(DeviceShare(uid, placement.milli / WHOLE_GPU_MILLI))
        if placement.sharing is not Sharing.EXCLUSIVE:
            device.sharing = placement.sharing.name.lower()


def _entries(intake: JobIntake, uids: Collection[str], limit: int) -> list[tuple[str, int | None, int | None, str]]:
    """Up to ``limit`` of ``uids``, with their GPUs, their position in the queue and why they wait."""
    state, ids = intake.engine.state, intake.engine.state.jobs.ids
    found: list[tuple[str, int | None, int | None, str]] = [
        (ids[row], placement.gpus, None, "") for row, placement in state.placed.items() if ids[row] in uids
    ]
    for position, row in enumerate(state.waiting, start=1):
        if len(found) >= limit:
            break
        if ids[row] in uids:
            found.append((ids[row], None, position, _why(intake, ids[row])))
    listed = {uid for uid, *_ in found}
    for uid in uids:
        if len(found) >= limit:
            break
        if uid not in listed and uid in intake.admission:
            found.append((uid, None, None, _why(intake, uid)))
    return found[:limit]


def _why(intake: JobIntake, uid: str) -> str:
    return str(intake.reason(uid) or "")
