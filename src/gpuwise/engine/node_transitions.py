"""How events about nodes change the state.

Executors may report a node late, twice, or after it has left: what is not known is passed over, and what is reported
again changes nothing. Jobs stay wherever their devices stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from gpuwise.core.cluster.capacity import Claim
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Command, Grant, Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import (
    DeviceLost,
    DeviceRestored,
    DevicesClaimed,
    Event,
    NodeAdded,
    NodeChanged,
    NodeEvent,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    ReleaseRefused,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.engine.allocation import PENDING, Handler, refresh_rates, requeue, reshape

NOWHERE = Placement(())


def is_news(state: ClusterState, event: NodeEvent) -> bool:
    """Whether an event changes anything: executors report all they see when they start again."""
    if isinstance(event, (NodeAdded, NodeChanged)):
        row = state.nodes.row(event.node.name)
        if row is None:
            return isinstance(event, NodeAdded)
        if isinstance(event, NodeChanged):
            return state.nodes.specs[row] != event.node
        comes_back = row in state.capacity.down and event.node.name not in state.released
        return comes_back or state.nodes.specs[row] != still_drained(state.nodes.specs[row], event.node)
    if isinstance(event, ReleaseRefused):
        return event.node in state.released
    assert isinstance(event, (NodeRemoved, NodeLost, NodeRestored, DeviceLost, DeviceRestored, DevicesClaimed))
    row = state.nodes.row(event.node)
    if row is None:
        return isinstance(event, NodeRemoved) and event.node in state.requested
    if isinstance(event, (NodeLost, NodeRestored)):
        back = isinstance(event, NodeRestored) and state.nodes.names[row] not in state.released
        return (row in state.capacity.down) is back
    if isinstance(event, (DeviceLost, DeviceRestored)):
        device = state.nodes.device(row, event.device)
        is_lost = device is not None and bool(state.capacity.lost.get(row, 0) >> device & 1)
        return device is not None and is_lost is isinstance(event, DeviceRestored)
    if not isinstance(event, DevicesClaimed):
        return True
    return _claim(state, row, event) != state.capacity.claims.get(row, Claim()) or (
        event.parked != state.parked.get(event.node, ())
    )


def _added(state: ClusterState, event: NodeAdded) -> None:
    row = state.nodes.row(event.node.name)
    state.requested.pop(event.node.name, None)
    if row is None:
        state.capacity.add_node(state.nodes.put(event.node))
    elif state.nodes.specs[row].is_same_machine(event.node):
        _change(state, row, still_drained(state.nodes.specs[row], event.node))
        _back_in_service(state, row)
    else:
        _remove(state, row)
        state.capacity.add_node(state.nodes.put(event.node))


def still_drained(before: NodeSpec, now: NodeSpec) -> NodeSpec:
    """A machine that is there, as it is reported again: that it was drained stays in force."""
    same = before.is_same_machine(now)
    return replace(now, schedulable=now.schedulable and before.schedulable) if same else now


def _changed(state: ClusterState, event: NodeChanged) -> None:
    row = state.nodes.row(event.node.name)
    if row is None:
        return
    if state.nodes.specs[row].is_same_machine(event.node):
        _change(state, row, event.node)
    else:
        _added(state, NodeAdded(event.at_s, event.node))


def _removed(state: ClusterState, event: NodeRemoved) -> None:
    """A node has left, or one that was asked for cannot be had."""
    row = state.nodes.row(event.node)
    if row is not None:
        _remove(state, row)
    elif isinstance(event.node, str):
        state.requested.pop(event.node, None)


def _lost(state: ClusterState, event: NodeLost) -> None:
    row = state.nodes.row(event.node)
    if row is not None:
        _requeue_from(state, lambda placement: row in placement.nodes, event.interrupted)
        state.capacity.set_up(row, False)


def _restored(state: ClusterState, event: NodeRestored) -> None:
    row = state.nodes.row(event.node)
    if row is not None:
        _back_in_service(state, row)


def _release_refused(state: ClusterState, event: ReleaseRefused) -> None:
    row = state.nodes.row(event.node)
    state.released.discard(event.node)
    if row is not None:
        state.capacity.set_up(row, True)


def _back_in_service(state: ClusterState, row: int) -> None:
    """A node is in service again, unless it was released and has only not left yet."""
    if state.nodes.names[row] not in state.released:
        state.capacity.set_up(row, True)


def _device_lost(state: ClusterState, event: DeviceLost) -> None:
    where = _device(state, event)
    if where is not None:
        _requeue_from(state, lambda placement: where in placement.devices(), event.interrupted)
        state.capacity.set_device_up(*where, False)


def _device_restored(state: ClusterState, event: DeviceRestored) -> None:
    where = _device(state, event)
    if where is not None:
        state.capacity.set_device_up(*where, True)


def _claimed(state: ClusterState, event: DevicesClaimed) -> None:
    row = state.nodes.row(event.node)
    if row is not None:
        state.capacity.set_claim(row, _claim(state, row, event))
        _keep_parked(state, event)


def _keep_parked(state: ClusterState, event: DevicesClaimed) -> None:
    """Notes what parked jobs keep on a node, so that it does not count against the job itself."""
    before = state.parked.pop(event.node, ())
    if event.parked:
        state.parked[event.node] = event.parked
    uids = dict.fromkeys(uid for uid, _, _ in (*before, *event.parked))
    for job in (state.jobs.row_of[uid] for uid in uids if uid in state.jobs.row_of):
        reshape(state, job, parked=state.parked_by(job))


def _claim(state: ClusterState, row: int, event: DevicesClaimed) -> Claim:
    devices = ((state.nodes.device(row, name), memory, exclusive) for name, memory, exclusive in event.devices)
    known = sorted((device, memory, exclusive) for device, memory, exclusive in devices if device is not None)
    return Claim(tuple(known), event.cpus, event.memory_bytes)


def _device(state: ClusterState, event: DeviceLost | DeviceRestored) -> tuple[int, int] | None:
    row = state.nodes.row(event.node)
    device = None if row is None else state.nodes.device(row, event.device)
    return None if row is None or device is None else (row, device)


def _remove(state: ClusterState, row: int) -> None:
    _keep_parked(state, DevicesClaimed(state.now_s, state.nodes.names[row]))
    _requeue_from(state, lambda placement: row in placement.nodes)
    state.capacity.remove_node(row)
    state.released.discard(state.nodes.names[row])


def _change(state: ClusterState, row: int, spec: NodeSpec) -> None:
    """Makes a node another, with the jobs on it whose devices are still there."""
    before = state.nodes.specs[row]
    if before == spec:
        return
    kept = before.kept_devices(spec)
    _requeue_from(state, lambda placement: any(node == row and at not in kept for node, at in placement.devices()))
    staying = [job for job, placement in state.placed.items() if row in placement.nodes]
    for job in staying:
        _lift(state, job)
    state.capacity.change_node(row, spec)
    for job in staying:
        _put_back(state, job, _moved(state.placed[job], row, kept))
    state.leaving |= {job: _moved(placement, row, kept) for job, placement in state.leaving.items()}
    refresh_rates(state, tuple(job for job in staying if job in state.placed))


def _lift(state: ClusterState, job: int) -> None:
    """Takes a job off its devices, for a moment."""
    placement = state.placed[job]
    state.capacity.give(placement, state.jobs.shape_by_row[job])
    if placement.sharing is not Sharing.EXCLUSIVE:
        state.residents.remove(job, placement)


def _put_back(state: ClusterState, job: int, placement: Placement) -> None:
    """Puts a job on its devices again; it is requeued if they do not take it any more."""
    try:
        state.capacity.retake(placement, state.jobs.shape_by_row[job])
    except OverAllocationError:
        state.placed[job] = NOWHERE
        requeue(state, job, PENDING, state.jobs.saved_steps.item(job), state.now_s)
        return
    state.placed[job] = placement
    if placement.sharing is not Sharing.EXCLUSIVE:
        state.residents.add(job, placement)


def _moved(placement: Placement, row: int, kept: dict[int, int]) -> Placement:
    """A placement after the devices of a node have changed their indexes."""
    if row not in placement.nodes:
        return placement
    return placement._replace(
        grants=tuple(
            grant if grant.node != row else grant._replace(devices=_moved_mask(grant, kept))
            for grant in placement.grants
        )
    )


def _moved_mask(grant: Grant, kept: dict[int, int]) -> int:
    return sum(1 << moved for device, moved in kept.items() if grant.devices >> device & 1)


def _requeue_from(
    state: ClusterState,
    hit: Callable[[Placement], bool],
    interrupted: Iterable[tuple[int, float]] = (),
) -> None:
    """Jobs that lose their place, and those that were still saving there, wait again with what they kept."""
    kept = dict(interrupted)
    placed = [job for job, placement in state.placed.items() if hit(placement)]
    saving = [job for job in kept if state.status(job) is Status.SUSPENDING]
    saving += [job for job, placement in state.leaving.items() if job not in kept and hit(placement)]
    for job in (*placed, *saving):
        requeue(state, job, PENDING, kept.get(job, state.jobs.saved_steps.item(job)), state.now_s)


NODE_HANDLERS: dict[type[Event] | type[Command], Handler] = {
    NodeAdded: _added, NodeChanged: _changed, NodeRemoved: _removed, NodeLost: _lost, NodeRestored: _restored,
    ReleaseRefused: _release_refused, DeviceLost: _device_lost, DeviceRestored: _device_restored,
    DevicesClaimed: _claimed,
}  # fmt: skip
