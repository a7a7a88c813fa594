"""Whether what was decided can be done: checked for every command before the state is changed."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any

from gpuwise.core.cluster.eligible import wrong_placement
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import (
    Command,
    Migrate,
    Placement,
    Rearrange,
    Release,
    Repartition,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.life_cycle import Status
from gpuwise.devices import mig


class InvalidDecisionError(GpuwiseError):
    """A policy decided what cannot be done."""


_BEGINS: dict[type[Command], int] = {Start: int(Status.PENDING), Resume: int(Status.SUSPENDED)}


def check_command(state: ClusterState, kind: type[Command], command: Any) -> None:
    """Start is for jobs that never ran or must begin again, resume for the suspended, the rest for the placed."""
    if kind in _BEGINS:
        job = command.job
        if state.jobs.status.item(job) != _BEGINS[kind]:
            raise InvalidDecisionError(f"its job is {state.status(job).name}, not {Status(_BEGINS[kind]).name}")
        if job not in state.waiting:
            on_hold = state.jobs.held.item(job)
            raise InvalidDecisionError(
                "its job is on hold" if on_hold else "its job is not in the queue: its start was refused a moment ago"
            )
        _check_placement(state, job, command.placement)
    elif kind is Rearrange:
        _check_moves(state, command.moves)
    elif kind in (Migrate, Resize):
        _check_moves(state, ((command.job, command.placement),))
    elif kind is Suspend:
        _check_placed(state, command.job)
    elif kind is Repartition:
        _check_device(state, command.node, command.device)
    elif kind is Release and not (command.node >= 0 and state.nodes.row(command.node) is not None):
        raise InvalidDecisionError(f"there is no node {command.node}")
    elif kind is Stop and not 0 <= command.job < state.submitted:
        raise InvalidDecisionError(f"there is no job {command.job}")


def check_slices(state: ClusterState, command: Repartition) -> None:
    """Whether a GPU of that type can be partitioned into these slices."""
    nodes = state.nodes
    try:
        mig.check_slices(nodes.types[nodes.type_of[command.node]], command.slices)
    except GpuwiseError as error:
        raise InvalidDecisionError(str(error)) from error


def check_once(state: ClusterState, policy: str, commands: Sequence[Command]) -> None:
    """A decision has one command for a job: what a second one finds would depend on how the first came out."""
    seen: set[int] = set()
    for command in commands:
        moves = command.moves if isinstance(command, Rearrange) else ((getattr(command, "job", None), None),)
        jobs = {job for job, _ in moves if job is not None}
        if seen & jobs:
            twice = state.jobs.ids[min(seen & jobs)]
            raise InvalidDecisionError(f"policy {policy!r} decided {command}: it has another command for job {twice!r}")
        seen |= jobs


def check_notes(
    state: ClusterState, policy: str, columns: Container[str], notes: Sequence[tuple[str, int, float]]
) -> None:
    """A policy writes numbers to its own columns, of jobs that there are."""
    for column, job, value in notes:
        if column not in columns:
            raise InvalidDecisionError(
                f"policy {policy!r} writes to column {column!r}, which is not among its `columns`"
            )
        if not 0 <= job < state.submitted or not math.isfinite(value):
            raise InvalidDecisionError(f"policy {policy!r} writes {value} to {column!r} of job {job}")


def _check_device(state: ClusterState, node: int, device: int) -> None:
    nodes = state.nodes
    if not (0 <= node < len(nodes) and 0 <= device < nodes.gpus.item(node)):
        raise InvalidDecisionError(f"there is no device {device} on node {node}")


def _check_moves(state: ClusterState, moves: Sequence[tuple[int, Placement]]) -> None:
    """Jobs that move have GPUs, may have the new ones, and there is room once they have left the old."""
    trial, jobs = state.capacity.fork(), state.jobs
    for job, placement in moves:
        _check_placed(state, job)
        _check_placement(state, job, placement)
        trial.give(state.placed[job], jobs.shape_of(job))
    for job, placement in moves:
        trial.take(placement, jobs.shape_of(job))


def _check_placed(state: ClusterState, job: int) -> None:
    if job not in state.placed:
        raise InvalidDecisionError("its job has no GPUs")


def _check_placement(state: ClusterState, job: int, placement: Placement) -> None:
    if wrong := wrong_placement(placement, state.jobs.shape_by_row[job], state.capacity):
        raise InvalidDecisionError(f"job {state.jobs.ids[job]!r}: {wrong}")
