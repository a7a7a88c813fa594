"""The ways in which a job could start now: alone, beside others, on a slice; each with its cost in time and money."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpuwise.core.commands import Grant, Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.mig import has_mig
from gpuwise.policies.beliefs import speed, speeds, time_left_s
from gpuwise.policies.slices.mig_gpus import MigGpus
from gpuwise.policies.slices.partitions import Partition, Where, assign, best_partition, may_slice, on_mig_slice

LOOK_AT = 8
"""Open devices that are considered for each job and kind of sharing, those with the least left first."""
MOST_SLICES = 7
STILL_GOOD = 0.7
"""A GPU is left to empty if its jobs have less than this part of their speed on the best partition."""


@dataclass(frozen=True)
class Terms:
    """What offers are weighed by."""

    most_slowdown: float = 0.3
    """The part of its speed that no job may lose to neighbours, by the low end of what is believed."""
    time_worth: float = 1.0
    """How many GPUs of the average price a job's time is worth: more favours speed, less favours small shares."""
    turns: int = 2
    """The number of jobs that take turns on a GPU."""
    repartition_s: float = 10.0
    """How long it is believed to take to partition an empty GPU."""

    def __post_init__(self) -> None:
        _require(self, "most_slowdown", 0 <= self.most_slowdown < 1, "0 or more and below 1")
        _require(self, "time_worth", 0 < self.time_worth < math.inf, "above 0")
        _require(self, "turns", self.turns >= 1, "1 or more")
        _require(self, "repartition_s", 0 <= self.repartition_s < math.inf, "0 or more")


def _require(terms: Terms, name: str, is_so: bool, expected: str) -> None:
    if not is_so:
        raise GpuwiseError(f"policy 'share': {name} is {getattr(terms, name)}; it must be {expected}")


class Offer(NamedTuple):
    """A placement and its cost, in GPU seconds of the average price; the cheapest is taken."""

    cost: float
    placement: Placement
    where: Where
    partition: Partition | None = None
    """How to partition the GPU first."""


class Offers:
    """The offers to the jobs of one decision.

        cost = T · (share · (price + worth · queue) + worth) + worth · Σ over neighbours of the time they lose

    T is the believed time until the job is done, share its part of the GPU, price that of the GPU relative to the
    average, queue the number of waiting jobs per GPU, and worth how many GPUs a job's time is worth.
    """

    def __init__(self, gpus: MigGpus, terms: Terms) -> None:
        self._gpus = gpus
        self._view = gpus.view
        self._terms = terms
        nodes = self._view.nodes
        count = len(nodes)
        each = nodes.usd_per_hour[:count] / np.maximum(nodes.gpus[:count], 1)
        known = each[np.isfinite(each) & (each > 0)]
        self._prices = np.where(np.isfinite(each), each / known.mean(), 1.0) if len(known) else np.ones(count)
        self._suited: dict[tuple[Where, tuple[int, ...]], bool] = {}
        self._gpu_count = max(1, int(nodes.gpus[:count].sum()))

    def cost(self, node: int, share: float, time_s: float, queue: int) -> float:
        """What a share of a GPU costs for a time, while ``queue`` jobs wait."""
        worth = self._terms.time_worth
        return time_s * (share * (float(self._prices[node]) + worth * queue / self._gpu_count) + worth)

    def to(self, job: int, behind: Sequence[int]) -> list[Offer]:
        """Every offer to a job; ``behind`` are the jobs after it in the queue."""
        found = [*self._slices(job, behind)] if may_slice(self._view.shape(job)) else []
        for where in self._gpus.whole(job):
            found += self._on_idle(job, where, behind)
        for mode in (Sharing.SHARED, Sharing.TIME_SLICE):
            if mode in self._view.shape(job).sharing:
                found += self._beside(job, mode, behind)
        return [offer for offer in found if offer.cost < math.inf]

    def _on_idle(self, job: int, where: Where, behind: Sequence[int]) -> Iterator[Offer]:
        """Alone, or as the first of several jobs on a GPU; with an unknown speed, only alone."""
        view, sharing = self._view, self._view.shape(job).sharing
        if (whole := self._gpus.to_itself(job, where)) is not None:
            believed, placement, partition = whole
            cost = self.cost(where[0], 1.0, time_left_s(view, job, believed), len(behind))
            yield Offer(cost, placement, where, partition)
        for mode in (Sharing.SHARED, Sharing.TIME_SLICE):
            if mode in sharing:
                placement = self.part(job, where, mode)
                time_s = time_left_s(view, job, speed(view, job, placement))
                yield Offer(
                    self.cost(where[0], placement.milli / WHOLE_GPU_MILLI, time_s, len(behind)), placement, where
                )
        if may_slice(view.shape(job)) and has_mig(kind := self._gpus.kind(where[0])):
            for partition in self._partitions(job, where, kind, behind):
                yield self._on_slice(job, where, partition, behind)

    def part(self, job: int, where: Where, mode: Sharing) -> Placement:
        """A part of a device: as much as the job is believed to use of it, or a time slice."""
        asked, used = self._view.shape(job).milli, self._view.jobs.gpu_util_frac.item(job)
        if mode is Sharing.TIME_SLICE:
            milli = min(asked, WHOLE_GPU_MILLI // self._terms.turns)
        else:
            milli = min(WHOLE_GPU_MILLI, max(1, math.ceil(WHOLE_GPU_MILLI * used))) if used >= 0 else asked
        return Placement((Grant(where[0], 1 << where[1]),), mode, milli)

    def _partitions(self, job: int, where: Where, kind: str, behind: Sequence[int]) -> Iterator[Partition]:
        """The partition on which a job and some behind it are fastest in sum; and one for each size of slice."""
        others = [each for each in behind[: 2 * MOST_SLICES] if may_slice(self._view.shape(each))]
        row = self._gpus.profile_speeds(job, kind, where)
        sizes = [tuple(each if at == size else 0.0 for at, each in enumerate(row)) for size in range(len(row))]
        for partition in (
            self._best_partition(kind, where, [job, *others][:MOST_SLICES]),
            *(best_partition(kind, [each]) for each in sizes),
        ):
            if partition is not None:
                yield partition

    def _on_slice(self, job: int, where: Where, partition: Partition, behind: Sequence[int]) -> Offer:
        piece = partition.slices[partition.of[0]]
        time_s = self._terms.repartition_s + time_left_s(self._view, job, self._gpus.speed_on(job, where, piece))
        share = piece.milli / WHOLE_GPU_MILLI
        return Offer(self.cost(where[0], share, time_s, len(behind)), on_mig_slice(where, piece), where, partition)

    def _slices(self, job: int, behind: Sequence[int]) -> Iterator[Offer]:
        """Free slices of GPUs that are partitioned well enough; other GPUs are left to empty, to be repartitioned."""
        for where, piece in self._gpus.free_slices(job):
            there = (where, tuple(self._there(where)))
            if there not in self._suited:
                self._suited[there] = self._suits(where, (job, *behind))
            if not self._suited[there]:
                continue
            time_s = time_left_s(self._view, job, self._gpus.speed_on(job, where, piece))
            cost = self.cost(where[0], piece.milli / WHOLE_GPU_MILLI, time_s, len(behind))
            yield Offer(cost, on_mig_slice(where, piece), where)

    def _suits(self, where: Where, behind: Sequence[int]) -> bool:
        """Whether the jobs on a GPU and the next in the queue are about as fast there as on the best partition."""
        kind, slices = self._gpus.kind(where[0]), self._gpus.draft.capacity.layouts[where]
        if not has_mig(kind):
            return True  # other partitions of it are unknown
        there = self._there(where)
        able = [each for each in behind[: 2 * MOST_SLICES] if may_slice(self._view.shape(each))]
        jobs = [*there, *able][:MOST_SLICES]
        values = np.array([[self._gpus.speed_on(each, where, piece) for piece in slices] for each in jobs])
        now = sum(float(values[pair]) for pair in assign(values))
        best = self._best_partition(kind, where, jobs)
        return best is None or now >= STILL_GOOD * best.speed

    def _best_partition(self, kind: str, where: Where, jobs: Sequence[int]) -> Partition | None:
        rows = [self._gpus.profile_speeds(each, kind, where) for each in jobs]
        found = [best_partition(kind, rows[: count + 1]) for count in range(len(rows))]
        return max((each for each in found if each is not None), key=lambda each: each.speed, default=None)

    def _beside(self, job: int, mode: Sharing, behind: Sequence[int]) -> Iterator[Offer]:
        """Devices that other jobs share in the same way, if no job there is slowed down by more than is allowed."""
        capacity, shape = self._gpus.draft.capacity, self._view.shape(job)
        milli = self.part(job, (0, 0), mode).milli
        room = (capacity.open_sharing == mode) & (capacity.open_milli >= milli)
        room &= capacity.open_memory >= shape.gpu_bytes
        places = [(node, device) for node, device in np.argwhere(room).tolist() if self._usable(job, (node, device))]
        for where in sorted(places, key=lambda each: int(capacity.open_milli[each]))[:LOOK_AT]:
            placement = self.part(job, where, mode)
            cost = self._cost_beside(job, placement, self._there(where), behind)
            if cost is not None:
                yield Offer(cost, placement, where)

    def _usable(self, job: int, where: Where) -> bool:
        capacity, shape, node = self._gpus.draft.capacity, self._view.shape(job), where[0]
        if self._gpus.is_reserved(where):
            return False
        if not capacity.allowed(shape) >> node & 1:
            return False
        milli, size = capacity.free_host(node)
        host = milli >= shape.cpu_milli and size >= shape.host_bytes
        return host and capacity.up[node] and self._view.nodes.type_of[node] in capacity.types_for(shape)

    def _there(self, where: Where) -> list[int]:
        """The jobs on a shared device, those of this decision included."""
        draft = self._gpus.draft
        placed = ((job, draft.placement(job)) for job in draft.started())
        return [*self._before.get(where, ()), *(job for job, at in placed if at and where in at.devices())]

    @cached_property
    def _before(self) -> dict[Where, list[int]]:
        found: dict[Where, list[int]] = {}
        for job, at in self._view.placed.items():
            for where in at.devices() if at.sharing is not Sharing.EXCLUSIVE else ():
                found.setdefault(where, []).append(job)
        return found

    def _cost_beside(self, job: int, placement: Placement, there: list[int], behind: Sequence[int]) -> float | None:
        """What sharing costs a job and those already there; None if it slows one of them down too much."""
        view, draft = self._view, self._gpus.draft
        jobs = [job, *there]
        places = [placement, *(draft.placement(each) or placement for each in there)]
        without = [[], *([other for other in there if other != each] for each in there)]
        together = [[other for other in jobs if other != each] for each in jobs]
        by_themselves = speeds(view, jobs, places, [[]] * len(jobs))
        least = speeds(view, jobs, places, together, surely=True)
        bound = 1.0 - self._terms.most_slowdown
        if not all(low >= bound * own > 0 for low, own in zip(least, by_themselves, strict=True)):
            return None
        before, after = speeds(view, jobs, places, without), speeds(view, jobs, places, together)
        lost_s = sum(
            time_left_s(view, each, slow) - time_left_s(view, each, fast)
            for each, fast, slow in zip(there, before[1:], after[1:], strict=True)
        )
        time_s = time_left_s(view, job, after[0])
        share = placement.milli / WHOLE_GPU_MILLI
        return self.cost(placement.grants[0].node, share, time_s, len(behind)) + self._terms.time_worth * lost_s
