"""The GPUs with MIG, the jobs on each, and what is free."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeSet, first, members, node_set
from gpuwise.core.commands import MigSlice, Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer
from gpuwise.devices.mig import has_mig, mig_profiles
from gpuwise.policies.beliefs import speed, start_where_it_runs
from gpuwise.policies.gpu_types.gains import makes_no_progress
from gpuwise.policies.placing.eligible import Hosts
from gpuwise.policies.slices.partitions import (
    Partition,
    ProfileSpeeds,
    Where,
    alone,
    as_one_slice,
    best_partition,
    may_slice,
    on_mig_slice,
    profile_speeds,
)

MIG_ONLY = frozenset((Sharing.MIG,))


@dataclass(slots=True)
class MigGpu:
    """A GPU that is partitioned, or used by one job that could be on a slice."""

    where: Where
    kind: str
    jobs: list[int] = field(default_factory=list)


class MigGpus:
    """The GPUs with MIG in a draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.view = draft.view
        self.reserved: set[tuple[Where, int]] = set()
        """Slices (a GPU and where they start; -1 for all of it) that are reserved for jobs that will resume there."""
        self._rows: dict[tuple[int, str], ProfileSpeeds] = {}

    def kind(self, node: int) -> str:
        """The GPU type of a node."""
        nodes = self.view.nodes
        return nodes.types[nodes.type_of[node]]

    def partitioned(self) -> Iterator[Where]:
        """GPUs that are partitioned and in service."""
        capacity = self.draft.capacity
        for node, device in list(capacity.layouts):
            if self._takes_jobs((node, device)):
                yield node, device

    def reserve(self, where: Where) -> None:
        """Lets no job start on a GPU."""
        slices = self.draft.capacity.layouts.get(where, ())
        self.reserved |= {(where, start) for start in (-1, *(piece.start for piece in slices))}

    def is_reserved(self, where: Where) -> bool:
        """Whether anything of a GPU is reserved."""
        return any(each == where for each, _ in self.reserved)

    def empty(self) -> Iterator[Where]:
        """GPUs that are partitioned, without jobs or reservations."""
        capacity = self.draft.capacity
        for where in self.partitioned():
            if len(capacity.free_slices[where]) == len(capacity.layouts[where]) and not self.is_reserved(where):
                yield where

    def free_slices(self, job: int, one_of_a_kind: bool = False) -> Iterator[tuple[Where, MigSlice]]:
        """Free slices on which a job fits, as do its CPUs and memory; all, or one of each type, size and price."""
        capacity, shape, nodes = self.draft.capacity, self.view.shape(job), self.view.nodes
        types, hosts = capacity.types_for(shape), Hosts(capacity, shape).with_room(1)
        seen: set[tuple[int, str, str]] = set()
        for where in self.partitioned():
            node = where[0]
            if not capacity.free_slices[where] or not hosts >> node & 1 or nodes.type_of[node] not in types:
                continue
            for piece in capacity.free_slices[where]:
                kind = (nodes.type_of[node], piece.profile, str(nodes.usd_per_hour.item(node)))
                if piece.memory_bytes < shape.gpu_bytes or (where, piece.start) in self.reserved or kind in seen:
                    continue
                if one_of_a_kind:
                    seen.add(kind)
                yield where, piece

    def whole(self, job: int) -> Iterator[Where]:
        """A GPU of each type and price that a job could have alone: an idle one, else an empty partitioned one."""
        capacity, shape = self.draft.capacity, self.view.shape(job)
        hosts = Hosts(capacity, shape).with_room(1)
        reserved = _devices(where for where, start in self.reserved if start < 0)
        for code in capacity.types_for(shape):
            for priced in self._by_price:
                usable = hosts & priced
                where = _first_idle(capacity, shape, capacity.with_idle(code, 1, shape) & usable, reserved)
                if where is None:
                    same = (each for each in self.empty() if self.view.nodes.type_of[each[0]] == code)
                    where = next((each for each in same if usable >> each[0] & 1), None)
                if where is not None:
                    yield where

    @cached_property
    def _by_price(self) -> list[NodeSet]:
        """The nodes of each price."""
        prices = self.view.nodes.usd_per_hour[: len(self.view.nodes)]
        known = np.unique(prices[~np.isnan(prices)])
        return [node_set(each) for each in (np.isnan(prices), *(prices == price for price in known)) if each.any()]

    def to_itself(self, job: int, where: Where) -> tuple[float, Placement, Partition | None] | None:
        """All of a GPU for one job: its believed speed, the placement, and the partition if it may be on slices only.

        A job whose speed is unknown counts as one of speed 1: it is safe alone.
        """
        kind = self.kind(where[0])
        if self.view.shape(job).alone:
            believed = speed(self.view, job, alone(where))
            return (1.0 if math.isnan(believed) else believed), alone(where), None
        if not has_mig(kind) or not may_slice(self.view.shape(job)):
            return None
        whole = as_one_slice(kind)
        fits = whole.slices[0].memory_bytes >= self.view.shape(job).gpu_bytes
        unknown = math.isnan(speed(self.view, job, on_mig_slice(where, whole.slices[0]))) and fits
        partition = whole if unknown else best_partition(kind, [self.profile_speeds(job, kind, where)])
        return (
            None
            if partition is None
            else (partition.speed, on_mig_slice(where, partition.slices[partition.of[0]]), partition)
        )

    def unpartition(self, where: Where) -> None:
        """Undoes the partition of an empty GPU, if it has one."""
        if where in self.draft.capacity.layouts:
            self.draft.cut(*where, ())

    def shared(self) -> list[MigGpu]:
        """GPUs whose jobs all run and could be put on other slices; those with the fewest jobs first."""
        found: dict[Where, MigGpu] = {}
        unfit = {where for where, _ in self.reserved}
        for job in (*self.view.placed, *self.draft.started()):
            before, now = self.view.placed.get(job), self.draft.placement(job)
            for where in () if before is None else before.devices():
                found.setdefault(where, MigGpu(where, self.kind(where[0]))).jobs.append(job)
            if before is None or before != now or not self._may_be_partitioned_for(job, before):
                unfit.update(where for each in (before, now) if each is not None for where in each.devices())
        unfit.update(where for where in found if not self._takes_jobs(where))
        fit = [gpu for where, gpu in found.items() if where not in unfit and has_mig(gpu.kind)]
        return sorted(fit, key=lambda gpu: (len(gpu.jobs), gpu.where))

    def _takes_jobs(self, where: Where) -> bool:
        """Whether a GPU is neither drained nor used by foreign processes."""
        capacity, (node, device) = self.draft.capacity, where
        return capacity.up[node] and not capacity.shut.get(node, 0) >> device & 1

    def _may_be_partitioned_for(self, job: int, placement: Placement) -> bool:
        alone = placement.sharing is Sharing.EXCLUSIVE and placement.gpus == 1
        return self.runs(job) and may_slice(self.view.shape(job)) and (alone or placement.sharing is Sharing.MIG)

    def runs(self, job: int) -> bool:
        """Whether a job makes steps, and is not still starting."""
        return self.view.status(job) is Status.RUNNING

    def profile_speeds(self, job: int, kind: str, where: Where) -> ProfileSpeeds:
        """A job's believed speeds on the slices of a GPU type."""
        known = self._rows.get((job, kind))
        if known is None:
            known = self._rows[job, kind] = profile_speeds(self.view, job, kind, where)
        return known

    def makes_no_progress(self, job: int) -> bool:
        """Whether a job is believed to make no progress anywhere here."""
        view, shape = self.view, self.view.shape(job)
        if shape.sharing != MIG_ONLY:
            return makes_no_progress(view, job)
        somewhere = [(view.nodes.type_of.index(code), 0) for code in view.capacity.types_for(shape)]
        return all(self.to_itself(job, where) is None for where in somewhere)

    def speed_on(self, job: int, where: Where, piece: MigSlice) -> float:
        """A job's believed speed on a slice."""
        kind = self.kind(where[0])
        number = _number(kind, piece.profile)
        if number is None:
            return max(0.0, speed(self.view, job, on_mig_slice(where, piece)))  # of NaN, 0
        return self.profile_speeds(job, kind, where)[number]


def start_without_slices(draft: Draft, job: int) -> bool:
    """Starts a job on unpartitioned GPUs, where the placer finds room and it is not believed to make no progress."""
    return draft.view.shape(job).sharing != MIG_ONLY and start_where_it_runs(draft, job)


def why_unplaced(view: ClusterView, job: int, reason: Reason) -> Reason:
    """Why a job for one GPU was not placed; ``reason`` says what room there is."""
    types = view.capacity.types_for(view.shape(job))
    if not types:
        return reason
    believed = speed(view, job, alone((view.nodes.type_of.index(types[0]), 0)))
    return Reason(Why.ALONE if math.isnan(believed) else Why.NO_GAIN, room_numbers(view, job, reason))


def room_numbers(view: ClusterView, job: int, reason: Reason) -> dict[str, float | str]:
    """The room for a job in numbers, with those of ``reason``."""
    capacity, nodes = view.capacity, view.nodes
    types = capacity.types_for(view.shape(job))
    total = sum(nodes.gpus.item(node) for node, code in enumerate(nodes.type_of) if code in types)
    idle = sum(capacity.idle_total[code] for code in types)
    partitioned = [where for where in capacity.layouts if nodes.type_of[where[0]] in types]
    slices = {
        "slices": sum(len(capacity.layouts[where]) for where in partitioned),
        "free": sum(len(capacity.free_slices[where]) for where in partitioned),
    }
    return {"gpus": view.shape(job).gpus, "where": "", "total": total, "idle": idle, **slices, **reason.numbers}


def feasible_with_mig(capacity: Capacity, shape: Shape, placer: Placer) -> bool:
    """Whether a job fits on an empty cluster whose GPUs may be partitioned."""
    if placer(capacity, shape, shape.gpus) is not None:
        return True
    nodes, types, hosts = capacity.nodes, capacity.types_for(shape), Hosts(capacity, shape).with_room(1)
    kinds = {nodes.types[code] for node, code in enumerate(nodes.type_of) if code in types and hosts >> node & 1}
    slices = [each for kind in kinds if has_mig(kind) for each in mig_profiles(kind)]
    return may_slice(shape) and any(each.memory_bytes >= shape.gpu_bytes for each in slices)


@cache
def _number(kind: str, profile: str) -> int | None:
    """The number of a profile of a GPU type; None for one that is not in the catalogue."""
    known = mig_profiles(kind) if has_mig(kind) else ()
    return next((number for number, each in enumerate(known) if each.name == profile), None)


def _devices(places: Iterator[Where]) -> dict[int, int]:
    found: dict[int, int] = {}
    for node, device in places:
        found[node] = found.get(node, 0) | 1 << device
    return found


def _first_idle(capacity: Capacity, shape: Shape, nodes: NodeSet, reserved: dict[int, int]) -> Where | None:
    for node in members(nodes):
        if free := capacity.usable(node, shape) & ~reserved.get(node, 0):
            return node, first(free)
    return None
