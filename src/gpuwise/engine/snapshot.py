"""A state as one document, with what has ended left out: what a journal need not be replayed for any more."""

from __future__ import annotations

from typing import Any

from gpuwise.core.commands import MigSlice
from gpuwise.core.jobs import ENDED, JobTable, Status
from gpuwise.core.spec import ClusterSpec, Sharing
from gpuwise.core.state import ClusterState
from gpuwise.engine.journal import JournalError, job_spec, node_spec, placement_of, plain

VERSION = 1
_COURSE = tuple(JobTable.COLUMNS)[tuple(JobTable.COLUMNS).index("status") :]
"""The columns that say how far a job has come."""


def snapshot(state: ClusterState) -> dict[str, Any]:
    """Everything a state needs to go on, as plain values."""
    capacity, jobs = state.capacity, state.jobs
    live = [job for job in range(state.submitted) if state.status(job) not in ENDED]
    return {
        "gpuwise_snapshot": VERSION,
        "now_s": state.now_s,
        "nodes": [plain(node) for node in state.nodes.specs],
        "down": [node for node, up in enumerate(capacity.up) if not up],
        "lost": [[node, devices] for node, devices in capacity.lost.items() if devices],
        "layouts": [[*where, slices] for where, slices in capacity.layouts.items()],
        "jobs": [_job(state, job) for job in live],
        "placed": [[jobs.ids[job], plain(placement)] for job, placement in state.placed.items()],
    }


def _job(state: ClusterState, job: int) -> dict[str, Any]:
    jobs = state.jobs
    return {
        "spec": plain(jobs.spec(job)),
        "course": {name: plain(getattr(jobs, name).item(job)) for name in _COURSE},
        "hold": state.holds.get(job),
        "key": plain(state.waiting.key_of(job)) if job in state.waiting else None,
    }


def cluster_of(document: dict[str, Any]) -> ClusterSpec:
    """The nodes that a snapshot was taken with."""
    if document.get("gpuwise_snapshot") != VERSION:
        raise JournalError(f"not a gpuwise snapshot of version {VERSION}")
    return ClusterSpec(tuple(node_spec(node) for node in document["nodes"]))


def restore(state: ClusterState, document: dict[str, Any], *, keep_order: bool = True) -> None:
    """Fills an empty state of the same nodes; without ``keep_order`` the line is made anew by the policy's key."""
    state.now_s = document["now_s"]
    _restore_devices(state, document)
    jobs = state.jobs
    rows = jobs.declare([job_spec(entry["spec"]) for entry in document["jobs"]])
    for row, entry in zip(rows, document["jobs"], strict=True):
        for name, value in entry["course"].items():
            getattr(jobs, name)[row] = float(value) if isinstance(value, str) else value
        if entry["hold"] is not None:
            state.holds[row] = entry["hold"]
    state.submitted = len(jobs)
    for uid, placement in document["placed"]:
        _put(state, jobs.row_of[uid], placement)
    for row, entry in zip(rows, document["jobs"], strict=True):
        if entry["key"] is not None and state.status(row) in (Status.PENDING, Status.SUSPENDED):
            state.waiting.add(row, float(entry["key"]) if keep_order else None)


def _restore_devices(state: ClusterState, document: dict[str, Any]) -> None:
    capacity = state.capacity
    for node, device, slices in document["layouts"]:
        capacity.repartition(node, device, tuple(MigSlice(*each) for each in slices))
    for node, devices in document["lost"]:
        for device in range(devices.bit_length()):
            if devices >> device & 1:
                capacity.set_device_up(node, device, False)
    for node in document["down"]:
        capacity.set_up(node, False)


def _put(state: ClusterState, job: int, entry: dict[str, Any]) -> None:
    placement = placement_of(entry)
    state.capacity.take(placement, state.jobs.shape_by_row[job])
    state.placed[job] = placement
    state.holders.add(job)
    if placement.sharing is not Sharing.EXCLUSIVE:
        state.residents.add(job, placement)
