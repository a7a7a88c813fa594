"""What is wanted of the world: all of it, and what each command adds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwise.core.assignments import Assignment, Desired, DeviceCut, Intent, NodeRequest
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import (
    Command,
    Migrate,
    MigSlice,
    Provision,
    Rearrange,
    Release,
    Repartition,
    Resize,
    Stop,
    Suspend,
)
from gpuwise.core.job.life_cycle import Status

RUN = Intent.RUN


def all_desired(state: ClusterState) -> list[Desired]:
    """Everything that is wanted: what an executor gets when it, or the engine, is new."""
    wanted: list[Desired] = [NodeRequest(node, True) for node in state.requested.values()]
    leaving_rows = [row for name in sorted(state.released) if (row := state.nodes.row(name)) is not None]
    wanted += [NodeRequest(state.nodes.specs[row], False) for row in leaving_rows]
    wanted += [_partition(state, *where, slices) for where, slices in state.capacity.layouts.items()]
    wanted += addressed(state, [_run(state, job) for job in state.placed])
    status = state.jobs.status[: state.submitted]
    leaving = np.flatnonzero((status == Status.SUSPENDING) | (status == Status.SUSPENDED))
    return [*wanted, *(leave(state, job, Intent.SUSPEND) for job in leaving.tolist())]


def desired_by(state: ClusterState, command: Command) -> list[Desired]:
    """What a command that was carried out makes of the world."""
    if isinstance(command, Suspend):
        return [leave(state, command.job, Intent.SUSPEND)]
    if isinstance(command, Stop):
        return [leave(state, command.job, Intent.STOP)]
    if isinstance(command, (Migrate, Resize)):
        return [_run(state, command.job)]
    if isinstance(command, Rearrange):
        return [_run(state, job) for job, _ in command.moves]
    if isinstance(command, Repartition):
        return [_partition(state, command.node, command.device, command.slices)]
    if isinstance(command, Provision):
        return [NodeRequest(command.node, True)]
    return [NodeRequest(state.nodes.specs[command.node], False)] if isinstance(command, Release) else []


def leave(state: ClusterState, job: int, intent: Intent) -> Assignment:
    """The newest attempt of a job is not to run any more."""
    return Assignment(state.jobs.ids[job], state.jobs.placements.item(job), intent)


def addressed(state: ClusterState, desired: Sequence[Desired]) -> list[Desired]:
    """What is wanted, for an executor that knows nothing of the engine's tables: devices by name."""
    return [
        _addressed(state, each) if isinstance(each, Assignment) and each.placement is not None else each
        for each in desired
    ]


def _addressed(state: ClusterState, wanted: Assignment) -> Assignment:
    job = state.jobs.row_of[wanted.job]
    assert wanted.placement is not None
    since_s = state.jobs.placed_s.item(job) - state.jobs.held_s.item(job)
    started = state.status(job) is Status.RUNNING and wanted.attempt == state.jobs.placements.item(job)
    where, names = state.nodes.where(wanted.placement), state.nodes.names
    tasks = tuple((role, names[node], count) for role, node, count in wanted.placement.tasks)
    return wanted._replace(where=where, held_since_s=since_s, started=started, tasks=tasks)


def repeated(state: ClusterState, job: int) -> list[Desired]:
    """What is wanted of a job that has GPUs, again, so that its executor looks at it."""
    return addressed(state, [_run(state, job)]) if job in state.placed else []


def _run(state: ClusterState, job: int) -> Assignment:
    return Assignment(state.jobs.ids[job], state.jobs.placements.item(job), RUN, state.placed[job])


def _partition(state: ClusterState, node: int, device: int, slices: tuple[MigSlice, ...]) -> DeviceCut:
    spec = state.nodes.specs[node]
    return DeviceCut(spec.name, spec.device_id(device), slices, (node, device))
