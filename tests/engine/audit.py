"""What must hold of a cluster's state at any time, worked out from scratch from who is placed where."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np

from gpuwise.core.cluster.capacity import Claim
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.job.life_cycle import ENDED, PLACED, WAITING, Status
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.units import UNLIMITED

WHOLE = 1000


def check_capacity(state: ClusterState) -> None:
    """Nothing is allocated twice, and every index of what is free agrees with where jobs are placed."""
    held = _Held(state)
    _check_devices(state, held)
    _check_buckets(state)
    _check_hosts(state)
    _check_slices(state, held)


class _Held:
    """Who is on each device."""

    def __init__(self, state: ClusterState) -> None:
        self.whole: dict[tuple[int, int], list[int]] = {}
        self.shares: dict[tuple[int, int], list[int]] = {}
        self.slices: dict[tuple[int, int], list[int]] = {}
        for job, placement in state.placed.items():
            kind = {Sharing.EXCLUSIVE: self.whole, Sharing.MIG: self.slices}.get(placement.sharing, self.shares)
            for where in placement.devices():
                kind.setdefault(where, []).append(job)
            for node in placement.nodes:
                assert node not in state.capacity.down, f"job {job} is on node {node}, which is lost"
                assert node not in state.nodes.removed, f"job {job} is on node {node}, which was removed"


def _check_devices(state: ClusterState, held: _Held) -> None:
    capacity, nodes = state.capacity, state.nodes
    for node in range(len(nodes)):
        for device in range(capacity.open_milli.shape[1]):
            where = (node, device)
            exists = device < nodes.gpus.item(node)
            whole, shares = held.whole.get(where, []), held.shares.get(where, [])
            cut = where in capacity.layouts
            assert len(whole) + bool(shares) + cut <= 1, f"device {where} is held in two ways: {whole}, {shares}, {cut}"
            assert exists or not (whole or shares or cut)
            lost = bool(capacity.lost.get(node, 0) >> device & 1)
            assert not (lost and (whole or shares or where in held.slices)), f"device {where} is lost, and held"
            idle = exists and not whole and not shares and not cut and not is_shut(state, where)
            assert bool(capacity.idle[node] >> device & 1) == idle, f"device {where}: idle mask"
            _check_shares(state, where, shares)


def _check_shares(state: ClusterState, where: tuple[int, int], shares: list[int]) -> None:
    capacity = state.capacity
    modes = {state.placed[job].sharing for job in shares}
    assert len(modes) <= 1, f"device {where} is shared in two ways"
    milli = sum(state.placed[job].milli for job in shares)
    memory = sum(state.jobs.shape_of(job).gpu_memory_bytes for job in shares)
    assert milli <= WHOLE, f"device {where}: {milli}/1000 are allocated"
    assert memory <= state.nodes.memory_of(where[0]), f"device {where}: its memory is allocated twice"
    mode = modes.pop() if modes else 0
    assert capacity.open_sharing[where] == (0 if is_shut(state, where) else mode)
    assert capacity.open_milli[where] == (WHOLE - milli if shares else 0)
    left = state.nodes.memory_of(where[0]) - claimed_memory(state, where) - memory
    assert capacity.open_memory[where] == (min(left, UNLIMITED) if shares else 0)


def is_shut(state: ClusterState, where: tuple[int, int]) -> bool:
    """Whether a device is lost, or somebody else computes there."""
    (node, device), claim = where, state.capacity.claims.get(where[0], Claim())
    lost = state.capacity.lost.get(node, 0) >> device & 1
    return bool(lost) or any(claimed == device and exclusive for claimed, _, exclusive in claim.devices)


def claimed_memory(state: ClusterState, where: tuple[int, int]) -> float:
    """What others use of a device's memory."""
    claim = state.capacity.claims.get(where[0], Claim())
    return sum(memory for device, memory, _ in claim.devices if device == where[1])


def _check_buckets(state: ClusterState) -> None:
    capacity, nodes = state.capacity, state.nodes
    for node in range(len(nodes)):
        takes_jobs = node not in capacity.down | nodes.removed and nodes.specs[node].schedulable
        assert capacity.up[node] == takes_jobs
    for code in range(len(nodes.types)):
        sizes = [spec.gpus for row, spec in nodes.present() if nodes.type_of[row] == code]
        assert len(capacity.by_idle[code]) == max(sizes, default=-1) + 1
        mine = [node for node in range(len(nodes)) if nodes.type_of[node] == code and capacity.up[node]]
        for count, bucket in enumerate(capacity.by_idle[code]):
            expected = sum(1 << node for node in mine if capacity.idle[node].bit_count() == count)
            assert bucket == expected, f"nodes of type {code} with {count} idle GPUs"
        assert all(capacity.idle[node].bit_count() < len(capacity.by_idle[code]) for node in mine)
        assert capacity.idle_total[code] == sum(capacity.idle[node].bit_count() for node in mine)


def _check_hosts(state: ClusterState) -> None:
    capacity, nodes, count = state.capacity, state.nodes, len(state.nodes)
    cpus = [1000.0 * each for each in nodes.cpus[:count].tolist()]  # whole thousandths, or infinite
    memory = nodes.memory_bytes[:count].tolist()
    assert sorted(state.placed_jobs.array().tolist()) == sorted(state.placed), "the array is not of the placed jobs"
    for job, placement in state.placed.items():
        shape = state.jobs.shape_of(job)
        needs_of = {role.name: role for role in shape.roles}
        for task in placement.tasks:
            cpus[task.node] -= task.number * math.floor(1000 * needs_of[task.role].cpus)
            memory[task.node] -= task.number * math.floor(needs_of[task.role].memory_bytes)
        gpus: Counter[int] = Counter()
        for grant in () if shape.roles else placement.grants:
            gpus[grant.node] += grant.devices.bit_count()
        for node, number in gpus.items():
            part = Fraction(number, shape.gpus) if shape.gpus else 1
            cpus[node] -= math.floor(math.floor(1000 * shape.cpus) * part)
            memory[node] -= math.floor(math.floor(shape.memory_bytes) * part)
    assert min(cpus, default=0) >= 0, "CPUs are allocated twice"
    assert min(memory, default=0) >= 0, "memory is allocated twice"
    for node, claim in capacity.claims.items():
        cpus[node], memory[node] = max(0, cpus[node] - 1000 * claim.cpus), max(0, memory[node] - claim.memory_bytes)
    assert capacity.free_cpus[:count].tolist() == [each / 1000 for each in cpus]
    assert capacity.free_memory[:count].tolist() == memory


def _check_slices(state: ClusterState, held: _Held) -> None:
    capacity = state.capacity
    assert capacity.layouts.keys() == capacity.free_slices.keys()
    assert held.slices.keys() <= capacity.layouts.keys()
    for where, layout in capacity.layouts.items():
        taken = []
        for job in dict.fromkeys(held.slices.get(where, ())):
            for grant in state.placed[job].grants:
                if (grant.node, grant.devices) == (where[0], 1 << where[1]):
                    piece = next(each for each in layout if each.start == grant.slice_start)
                    assert piece.memory_bytes >= state.jobs.shape_of(job).gpu_memory_bytes
                    taken.append(piece)
        assert len(set(taken)) == len(taken), f"a slice of {where} is allocated twice"
        free = () if is_shut(state, where) else tuple(piece for piece in layout if piece not in taken)
        assert capacity.free_slices[where] == free


def check_jobs(state: ClusterState) -> None:
    """Every submitted job is in exactly one place, and its status says which."""
    lined_up = list(state.waiting)
    assert len(lined_up) == len(set(lined_up)) == len(state.waiting), "a job waits twice"
    for job in range(len(state.jobs)):
        status = state.status(job)
        held = bool(state.jobs.held.item(job))
        lined = status in WAITING and not held and job not in state.backing_off
        assert job not in state.backing_off or status in (*WAITING, *PLACED), f"job {job} has ended and backs off"
        assert bool(state.jobs.shape_of(job).avoid) == (job in state.avoiding) or status in ENDED
        assert (job in state.waiting) == (job in set(lined_up)) == lined, f"job {job} is {status.name}, held: {held}"
        assert held == (job in state.on_hold) or status in ENDED
        assert (job in state.placed) == (status in PLACED), f"job {job} is {status.name}"
        assert (job in state.leaving) == (status is Status.SUSPENDING), f"job {job} is {status.name}"
        assert np.isfinite(state.jobs.finish_s[job]) == (status in ENDED)
        assert status is not Status.DECLARED
        assert (state.jobs.rate[job] > 0) >= (status is Status.RUNNING)
        assert 0 <= state.jobs.steps_done[job] <= state.jobs.steps[job]
        assert 0 <= state.jobs.overhead_gpu_s[job] <= state.jobs.attained_gpu_s[job] + 1e-6 or job in state.placed
    for job, placement in state.placed.items():
        shape = state.jobs.shape_of(job)
        assert shape.min_gpus <= placement.gpus <= shape.max_gpus, f"job {job} holds part of its gang"
        _check_gang(job, placement, shape.roles)
        for labels in (dict(state.nodes.specs[node].labels) for node in placement.nodes):
            assert all(labels.get(key) in values for key, values in shape.require), f"job {job} is on a wrong node"
        if shape.within:
            zones = {dict(state.nodes.specs[node].labels).get(shape.within, node) for node in placement.nodes}
            assert len(zones) <= 1, f"job {job} is not within one {shape.within}"


def _check_gang(job: int, placement: Placement, roles: tuple[Role, ...]) -> None:
    """Every role has a number of tasks in its range, and each node the GPUs that its tasks need; no roles, no tasks."""
    tasks = dict.fromkeys((role.name for role in roles), 0)
    needed = dict.fromkeys(placement.nodes, 0)
    gpus = {role.name: role.gpus for role in roles}
    for task in placement.tasks:
        tasks[task.role] += task.number
        needed[task.node] += task.number * gpus[task.role]
    for role in roles:
        low, high = role.count_range
        assert low <= tasks[role.name] <= high, f"job {job} has {tasks[role.name]} tasks of role {role.name}"
    for node in placement.nodes if roles else ():
        given = sum(grant.devices.bit_count() for grant in placement.grants if grant.node == node)
        assert given == needed[node], f"the tasks of job {job} need {needed[node]} GPUs of node {node}, not {given}"


def check_neighbours(state: ClusterState) -> None:
    """Jobs that share a device know of each other."""
    for job, placement in state.placed.items():
        beside = {
            other
            for other, theirs in state.placed.items()
            if other != job and set(theirs.devices()) & set(placement.devices())
        }
        shares = placement.sharing in (Sharing.TIME_SLICE, Sharing.SHARED)
        assert set(state.residents.neighbours(job, placement)) == (beside if shares else set())


def check_equal(left: ClusterState, right: ClusterState) -> None:
    """Two states are the same in every column and index."""
    assert left.now_s >= right.now_s  # what is no news is not written down, though time has passed
    assert left.submitted == right.submitted
    for (name, ours), theirs in zip(left.jobs.columns().items(), right.jobs.columns().values(), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=f"column {name}")
    assert left.jobs.ids == right.jobs.ids
    assert left.jobs.shapes == right.jobs.shapes
    assert list(left.placed.items()) == list(right.placed.items())
    assert list(left.leaving.items()) == list(right.leaving.items())
    assert set(left.waiting) == set(right.waiting)
    assert (left.backing_off, left.avoiding, left.parked) == (right.backing_off, right.avoiding, right.parked)
    assert (left.nodes.specs, left.nodes.removed) == (right.nodes.specs, right.nodes.removed)
    assert (left.released, left.requested) == (right.released, right.requested)
    _same_capacity(left, right)
    for job, placement in left.placed.items():
        assert left.residents.neighbours(job, placement) == right.residents.neighbours(job, placement)


def picture(state: ClusterState) -> dict[str, Any]:
    """Everything a state holds, in a form that later changes do not touch and that compares as a whole."""
    capacity = state.capacity
    held = {name: repr(column.tolist()) for name, column in state.jobs.columns().items()}
    for name in ("idle", "by_idle", "idle_total", "up", "down", "lost", "claims", "shut", "layouts", "free_slices"):
        held[f"capacity.{name}"] = repr(getattr(capacity, name))
    for name in ("free_cpu_milli", "free_host_bytes", "open_milli", "open_memory", "open_sharing"):
        held[f"capacity.{name}"] = repr(getattr(capacity, name).tolist())
    return {**held, "waiting": list(state.waiting), "placed": dict(state.placed), "nodes": list(state.nodes.names)}


def _same_capacity(left: ClusterState, right: ClusterState) -> None:
    ours, theirs = left.capacity, right.capacity
    for name in ("idle", "by_idle", "idle_total", "up", "down", "lost", "claims", "shut", "layouts", "free_slices"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("free_cpu_milli", "free_host_bytes", "open_milli", "open_memory", "open_sharing"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
