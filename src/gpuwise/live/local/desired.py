"""What is wanted of this machine: the last assignment of each job, and how its devices are to be partitioned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuwise.core.assignments import Assignment, Desired, DeviceCut, Intent, Where
from gpuwise.core.commands import Grant, MigSlice, Placement, TaskGrant
from gpuwise.devices.machine import Machine, MachineError
from gpuwise.devices.machine import Where as Device


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """What is wanted of a job."""

    attempt: int = 0
    """The newest one; 0 if nothing is known of the job any more, so that none of its processes shall be here."""
    intent: Intent = Intent.STOP
    placement: Placement | None = None
    """By the numbers of this machine's nodes and devices; None unless it is to run, and where that cannot be."""
    held_since_s: float = 0.0
    started: bool = False
    """Whether its newest attempt was seen to run before."""
    trouble: str = ""
    """Why it cannot run as is wanted."""


NOT_WANTED = DesiredJob()


@dataclass(slots=True)
class DeviceIndex:
    """The devices of a machine by their ids."""

    machine: Machine
    _at: dict[tuple[str, str], Device] = field(default_factory=dict)

    def find(self, node: str, device: str) -> Device:
        """The number of a node and of a device on it."""
        if not self._at:
            for number, spec in enumerate(self.machine.nodes):
                self._at |= {(spec.name, spec.device_id(each)): (number, each) for each in range(spec.gpus)}
        try:
            return self._at[node, device]
        except KeyError:
            raise MachineError(f"device {device} of node {node} is not on this machine") from None

    def placement(self, wanted: Assignment) -> Placement:
        """Where an assignment is on this machine."""
        asked = wanted.placement
        assert asked is not None, "only what is to run has a place"
        tasks = tuple(TaskGrant(role, self._node(node), number) for role, node, number in wanted.tasks)
        return asked._replace(grants=tuple(self._grant(each) for each in wanted.where), tasks=tasks)

    def _grant(self, where: Where) -> Grant:
        found = [self.find(where.node, device) for device in where.devices]
        node = found[0][0] if found else self._node(where.node)
        return Grant(node, sum(1 << device for _, device in found), where.slice_start)

    def _node(self, name: str) -> int:
        names = [spec.name for spec in self.machine.nodes]
        if name not in names:
            raise MachineError(f"node {name} is not on this machine")
        return names.index(name)


class DesiredState:
    """The newest assignment of each job and the layout of each device."""

    def __init__(self, machine: Machine) -> None:
        self._index = DeviceIndex(machine)
        self.layouts: dict[Device, tuple[MigSlice, ...]] = {}
        """How devices are to be partitioned; one that is not named is to be whole."""
        self._jobs: dict[str, DesiredJob] = {}

    def of(self, uid: str) -> DesiredJob:
        """What is wanted of a job."""
        return self._jobs.get(uid, NOT_WANTED)

    def jobs(self) -> list[str]:
        """The jobs of which something is wanted."""
        return list(self._jobs)

    def take(self, desired: Sequence[Desired], complete: bool) -> tuple[list[str], list[Device]]:
        """Notes what is wanted; the jobs and devices it is about."""
        if complete:
            self._jobs.clear()
            self.layouts.clear()
        jobs, devices = [], []
        for each in desired:
            if isinstance(each, Assignment):
                self._jobs[each.job] = self._desired_job(each)
                jobs.append(each.job)
            elif isinstance(each, DeviceCut):
                where = self._index.find(each.node, each.device)
                self.layouts[where] = each.slices
                devices.append(where)
        return jobs, devices

    def _desired_job(self, each: Assignment) -> DesiredJob:
        if each.intent is not Intent.RUN:
            return DesiredJob(each.attempt, each.intent)
        try:
            placement, trouble = self._index.placement(each), ""
        except MachineError as error:
            placement, trouble = None, str(error)
        return DesiredJob(each.attempt, each.intent, placement, each.held_since_s, each.started, trouble)

    def remove(self, uid: str, attempt: int) -> None:
        """An attempt is over, and nothing more is wanted of it."""
        if self.of(uid).attempt <= attempt:
            self._jobs.pop(uid, None)
