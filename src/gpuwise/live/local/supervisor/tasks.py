"""The tasks of a job with roles as processes of one attempt: which is which, and what each has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.shape import task_counts


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a job."""

    role: str
    index: int
    """Among those of its role, from 0."""
    count: int
    """How many its role has."""
    placement: Placement
    """Its own devices; none for a task without GPUs."""

    def environment(self) -> dict[str, str]:
        """What tells a process which task it is."""
        return {
            "GPUWISE_ROLE": self.role,
            "GPUWISE_ROLE_INDEX": str(self.index),
            "GPUWISE_ROLE_COUNT": str(self.count),
        }


def tasks_of(placement: Placement, gpus: Mapping[str, int]) -> list[Task]:
    """Every task of a placement in the order of its roles, where each role has so many GPUs per task."""
    devices: dict[int, list[Grant]] = {}
    for grant in placement.grants:
        single = [1 << device for device in range(grant.devices.bit_length()) if grant.devices >> device & 1]
        devices.setdefault(grant.node, []).extend(grant._replace(devices=each) for each in single)
    counts, seen = task_counts(placement.tasks), dict.fromkeys(gpus, 0)
    tasks: list[Task] = []
    for role, node, number in placement.tasks:
        for _ in range(number):
            own, devices[node] = devices.get(node, [])[: gpus[role]], devices.get(node, [])[gpus[role] :]
            part = Placement(tuple(own), placement.sharing, placement.milli)
            tasks.append(Task(role, seen[role], counts[role], part))
            seen[role] += 1
    return tasks
