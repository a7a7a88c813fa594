"""A state as one document, with what has ended left out: what a journal need not be replayed for any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuwise.core.cluster.capacity import Claim
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.job.life_cycle import ENDED, Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.table import JobTable
from gpuwise.engine.journal import JournalError, job_spec, node_spec, placement_of, plain, slices_of

VERSION = 1
_COURSE = ("steps", *tuple(JobTable.COLUMNS)[tuple(JobTable.COLUMNS).index("status") :])
"""The columns of a job's progress; steps are what this is counted in, also where they are not known."""


def snapshot(state: ClusterState) -> dict[str, Any]:
    """Everything a state needs to continue, as plain values."""
    capacity, jobs = state.capacity, state.jobs
    live = [job for job in range(state.submitted) if state.status(job) not in ENDED]
    return {
        "gpuwise_snapshot": VERSION,
        "now_s": state.now_s,
        "nodes": [plain(node) for node in state.nodes.specs],
        "removed": sorted(state.nodes.removed),
        "requested": [plain(node) for node in state.requested.values()],
        "released": sorted(state.released),
        "down": sorted(capacity.down),
        "lost": [[node, devices] for node, devices in capacity.lost.items() if devices],
        "claims": [[node, *plain(tuple(claim))] for node, claim in capacity.claims.items()],
        "layouts": [[*where, plain(slices)] for where, slices in capacity.layouts.items()],
        "jobs": [_job(state, job) for job in live],
        "backing_off": [[jobs.ids[job], until_s] for job, until_s in state.backing_off.items()],
        "avoiding": [[jobs.ids[job], until_s] for job, until_s in state.avoiding.items()],
        "parked": [[node, plain(kept)] for node, kept in state.parked.items()],
        "placed": [[jobs.ids[job], plain(placement)] for job, placement in state.placed.items()],
        "leaving": [[jobs.ids[job], plain(placement)] for job, placement in state.leaving.items()],
    }


def renumbered(document: dict[str, Any], order: Sequence[int]) -> dict[str, Any]:
    """A snapshot with the nodes of these rows only, in this order: all that are not removed must be among them."""
    rows = {row: number for number, row in enumerate(order)}
    made = document | {"nodes": [document["nodes"][row] for row in order]}
    names = {node["name"] for node in made["nodes"]}
    made["released"] = [name for name in document["released"] if name in names]
    made["removed"] = [rows[row] for row in document["removed"] if row in rows]
    made["down"] = [rows[row] for row in document["down"] if row in rows]
    for name in ("lost", "claims", "layouts"):
        made[name] = [[rows[row], *more] for row, *more in document[name] if row in rows]
    for name in ("placed", "leaving"):
        made[name] = [[uid, _moved(placement, rows)] for uid, placement in document[name]]
    return made


def _moved(placement: dict[str, Any], rows: Mapping[int, int]) -> dict[str, Any]:
    tasks = [[role, rows[node], number] for role, node, number in placement.get("tasks", ()) if node in rows]
    grants = [[rows[node], *more] for node, *more in placement["grants"] if node in rows]
    return placement | {"grants": grants} | ({"tasks": tasks} if tasks else {})


def _job(state: ClusterState, job: int) -> dict[str, Any]:
    jobs = state.jobs
    notes = {column: plain(values[job]) for column, values in state.notes.items() if job in values}
    return {
        **({"notes": notes} if notes else {}),
        **({"avoid": avoid} if (avoid := jobs.shape_by_row[job].avoid) else {}),
        "spec": plain(jobs.spec(job)),
        "course": {name: plain(getattr(jobs, name).item(job)) for name in _COURSE},
        "hold": state.on_hold.get(job),
        "key": plain(state.waiting.key_of(job)) if job in state.waiting else None,
    }


def cluster_of(document: dict[str, Any]) -> ClusterSpec:
    """The nodes that a snapshot was taken with, those that were removed before included."""
    if document.get("gpuwise_snapshot") != VERSION:
        raise JournalError(f"not a gpuwise snapshot of version {VERSION}")
    return ClusterSpec(tuple(node_spec(node) for node in document["nodes"]))


def restore(state: ClusterState, document: dict[str, Any], *, keep_order: bool = True) -> None:
    """Fills an empty state of the same nodes; without ``keep_order`` the queue is sorted again by the policy's key."""
    state.now_s = document["now_s"]
    _restore_devices(state, document)
    jobs = state.jobs
    rows = jobs.declare([job_spec(entry["spec"]) for entry in document["jobs"]])
    for row, entry in zip(rows, document["jobs"], strict=True):
        for name, value in entry["course"].items():
            getattr(jobs, name)[row] = float(value) if isinstance(value, str) else value
        if "avoid" in entry:
            jobs.reshape(row, avoid=tuple(entry["avoid"]))
        for column, value in entry.get("notes", {}).items():
            state.notes.setdefault(column, {})[row] = float(value)
        if entry["hold"] is not None:
            state.on_hold[row] = entry["hold"]
    state.submitted = len(jobs)
    state.backing_off.update({jobs.row_of[uid]: until_s for uid, until_s in document.get("backing_off", ())})
    state.avoiding.update({jobs.row_of[uid]: until_s for uid, until_s in document.get("avoiding", ())})
    _restore_parked(state, document)
    for uid, placement in document["placed"]:
        _put(state, jobs.row_of[uid], placement)
    for uid, placement in document.get("leaving", ()):  # earlier versions did not keep it
        state.leaving[jobs.row_of[uid]] = placement_of(placement)
    for row, entry in zip(rows, document["jobs"], strict=True):
        if entry["key"] is not None and state.status(row) in (Status.PENDING, Status.SUSPENDED):
            state.waiting.add(row, float(entry["key"]) if keep_order else None)


def _restore_parked(state: ClusterState, document: dict[str, Any]) -> None:
    """What parked jobs keep where they are, those that have ended since left out."""
    for node, kept in document.get("parked", ()):
        state.parked[node] = tuple((uid, device, float(memory)) for uid, device, memory in kept)
        for uid in {uid for uid, _, _ in state.parked[node]} & state.jobs.row_of.keys():
            state.jobs.reshape(job := state.jobs.row_of[uid], parked=state.parked_by(job))


def _restore_devices(state: ClusterState, document: dict[str, Any]) -> None:
    capacity = state.capacity
    for node in document.get("removed", ()):
        capacity.remove_node(node)
    for node, device, slices in document["layouts"]:
        capacity.repartition(node, device, slices_of(slices))
    for node, devices in document["lost"]:
        for device in range(devices.bit_length()):
            if devices >> device & 1:
                capacity.set_device_up(node, device, False)
    for node in document["down"]:
        capacity.set_up(node, False)
    asked_for = [node_spec(entry) for entry in document.get("requested", ())]  # earlier versions did not keep it
    state.requested.update({node.name: node for node in asked_for})
    state.released.update(document.get("released", ()))
    for node, devices, cpus, memory_bytes in document.get("claims", ()):
        claimed = tuple((device, float(memory), exclusive) for device, memory, exclusive in devices)
        capacity.set_claim(node, Claim(claimed, float(cpus), float(memory_bytes)))


def _put(state: ClusterState, job: int, entry: dict[str, Any]) -> None:
    placement = placement_of(entry)
    state.capacity.retake(placement, state.jobs.shape_by_row[job])
    state.placed[job] = placement
    state.placed_jobs.add(job)
    if placement.sharing is not Sharing.EXCLUSIVE:
        state.residents.add(job, placement)
