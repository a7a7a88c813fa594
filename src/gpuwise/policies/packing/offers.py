"""The ways in which a job could hold a GPU now, each with what it would cost in time and money."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpuwise.core.commands import Grant, Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.spec import Sharing
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.mig import has_mig
from gpuwise.policies.beliefs import speed, speeds, time_left_s
from gpuwise.policies.slices.cuts import Cut, Where, assign, best_cut, on_piece
from gpuwise.policies.slices.mig_gpus import Gpus, may_slice

LOOK_AT = 8
"""Open devices that are looked at for each job and kind of sharing, those with the least left first."""
MOST_SLICES = 7
STILL_GOOD = 0.7
"""A cut on which jobs have less than this of the speed they would have on the best one is given up."""


@dataclass(frozen=True)
class Terms:
    """What offers are weighed by."""

    most_slowdown: float = 0.3
    """The part of its speed that nobody may lose to neighbours, by the low end of what is believed."""
    time_worth: float = 1.0
    """How many GPUs of the average price a job's time is worth: more favours speed, less favours small shares."""
    turns: int = 2
    """Jobs that take turns on a GPU."""
    repartition_s: float = 10.0
    """How long it is believed to take to cut an empty GPU."""

    def __post_init__(self) -> None:
        _require(self, "most_slowdown", 0 <= self.most_slowdown < 1, "0 or more and below 1")
        _require(self, "time_worth", 0 < self.time_worth < math.inf, "above 0")
        _require(self, "turns", self.turns >= 1, "1 or more")
        _require(self, "repartition_s", 0 <= self.repartition_s < math.inf, "0 or more")


def _require(terms: Terms, name: str, is_so: bool, expected: str) -> None:
    if not is_so:
        raise GpuwiseError(f"policy 'share': {name} is {getattr(terms, name)}; it must be {expected}")


class Offer(NamedTuple):
    """A placement and what it costs, in GPU seconds of the average price; the cheapest is taken."""

    cost: float
    placement: Placement
    where: Where
    cut: Cut | None = None
    """How the GPU is to be cut first."""


class Offers:
    """What can be offered to the jobs of one decision.

        cost = T · (share · (price + worth · queue) + worth) + worth · Σ over neighbours of the time they lose

    T is the believed time until the job is done, share the part of the GPU it holds, price that of the GPU relative to
    the average, queue the jobs waiting for each GPU, and worth how many GPUs a job's time is worth.
    """

    def __init__(self, gpus: Gpus, terms: Terms) -> None:
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
        """What it costs to hold a share of a GPU for a time, while so many jobs wait."""
        worth = self._terms.time_worth
        return time_s * (share * (float(self._prices[node]) + worth * queue / self._gpu_count) + worth)

    def to(self, job: int, line: Sequence[int]) -> list[Offer]:
        """Everything a job could have now; ``line`` is who waits behind it."""
        found = [*self._slices(job, line)] if may_slice(self._view.shape(job)) else []
        for where in self._gpus.whole(job):
            found += self._on_idle(job, where, line)
        for mode in (Sharing.SHARED, Sharing.TIME_SLICE):
            if mode in self._view.shape(job).sharing:
                found += self._beside(job, mode, line)
        return [offer for offer in found if offer.cost < math.inf]

    def _on_idle(self, job: int, where: Where, line: Sequence[int]) -> Iterator[Offer]:
        """Alone, or the first of those that will share a GPU; where nothing is known, only alone."""
        view, sharing = self._view, self._view.shape(job).sharing
        if (whole := self._gpus.to_itself(job, where)) is not None:
            believed, placement, cut = whole
            cost = self.cost(where[0], 1.0, time_left_s(view, job, believed), len(line))
            yield Offer(cost, placement, where, cut)
        for mode in (Sharing.SHARED, Sharing.TIME_SLICE):
            if mode in sharing:
                placement = self.part(job, where, mode)
                time_s = time_left_s(view, job, speed(view, job, placement))
                yield Offer(self.cost(where[0], placement.milli / WHOLE_GPU_MILLI, time_s, len(line)), placement, where)
        if may_slice(view.shape(job)) and has_mig(kind := self._gpus.kind(where[0])):
            for cut in self._cuts(job, where, kind, line):
                yield self._on_slice(job, where, cut, line)

    def part(self, job: int, where: Where, mode: Sharing) -> Placement:
        """A part of a device: as much as the job is believed to use of it, or a turn."""
        asked, used = self._view.shape(job).milli, self._view.jobs.gpu_util_frac.item(job)
        if mode is Sharing.TIME_SLICE:
            milli = min(asked, WHOLE_GPU_MILLI // self._terms.turns)
        else:
            milli = min(WHOLE_GPU_MILLI, max(1, math.ceil(WHOLE_GPU_MILLI * used))) if used >= 0 else asked
        return Placement((Grant(where[0], 1 << where[1]),), mode, milli)

    def _cuts(self, job: int, where: Where, kind: str, line: Sequence[int]) -> Iterator[Cut]:
        """The cut on which a job and some of those next in line are fastest in sum; and one for each size of slice."""
        others = [each for each in line[: 2 * MOST_SLICES] if may_slice(self._view.shape(each))]
        row = self._gpus.row(job, kind, where)
        sizes = [tuple(each if at == size else 0.0 for at, each in enumerate(row)) for size in range(len(row))]
        for cut in (
            self._best_cut(kind, where, [job, *others][:MOST_SLICES]),
            *(best_cut(kind, [each]) for each in sizes),
        ):
            if cut is not None:
                yield cut

    def _on_slice(self, job: int, where: Where, cut: Cut, line: Sequence[int]) -> Offer:
        piece = cut.slices[cut.of[0]]
        time_s = self._terms.repartition_s + time_left_s(self._view, job, self._gpus.speed_on(job, where, piece))
        share = piece.milli / WHOLE_GPU_MILLI
        return Offer(self.cost(where[0], share, time_s, len(line)), on_piece(where, piece), where, cut)

    def _slices(self, job: int, line: Sequence[int]) -> Iterator[Offer]:
        """Free slices of GPUs that are cut well enough; the others are left to empty, to be cut anew."""
        for where, piece in self._gpus.free_slices(job):
            there = (where, tuple(self._there(where)))
            if there not in self._suited:
                self._suited[there] = self._suits(where, (job, *line))
            if not self._suited[there]:
                continue
            time_s = time_left_s(self._view, job, self._gpus.speed_on(job, where, piece))
            cost = self.cost(where[0], piece.milli / WHOLE_GPU_MILLI, time_s, len(line))
            yield Offer(cost, on_piece(where, piece), where)

    def _suits(self, where: Where, line: Sequence[int]) -> bool:
        """Whether those on a GPU and next in line are about as fast on its slices as on the best cut for them."""
        kind, slices = self._gpus.kind(where[0]), self._gpus.draft.capacity.layouts[where]
        if not has_mig(kind):
            return True  # how else it could be cut is not known
        there = self._there(where)
        able = [each for each in line[: 2 * MOST_SLICES] if may_slice(self._view.shape(each))]
        jobs = [*there, *able][:MOST_SLICES]
        values = np.array([[self._gpus.speed_on(each, where, piece) for piece in slices] for each in jobs])
        now = sum(float(values[pair]) for pair in assign(values))
        best = self._best_cut(kind, where, jobs)
        return best is None or now >= STILL_GOOD * best.speed

    def _best_cut(self, kind: str, where: Where, jobs: Sequence[int]) -> Cut | None:
        rows = [self._gpus.row(each, kind, where) for each in jobs]
        cuts = [best_cut(kind, rows[: count + 1]) for count in range(len(rows))]
        return max((cut for cut in cuts if cut is not None), key=lambda cut: cut.speed, default=None)

    def _beside(self, job: int, mode: Sharing, line: Sequence[int]) -> Iterator[Offer]:
        """Devices that others share in the same way, if nobody there is slowed down by more than is allowed."""
        capacity, shape = self._gpus.draft.capacity, self._view.shape(job)
        milli = self.part(job, (0, 0), mode).milli
        room = (capacity.open_sharing == mode) & (capacity.open_milli >= milli)
        room &= capacity.open_memory >= shape.gpu_memory_bytes
        places = [(node, device) for node, device in np.argwhere(room).tolist() if self._usable(job, (node, device))]
        for where in sorted(places, key=lambda each: int(capacity.open_milli[each]))[:LOOK_AT]:
            placement = self.part(job, where, mode)
            cost = self._cost_beside(job, placement, self._there(where), line)
            if cost is not None:
                yield Offer(cost, placement, where)

    def _usable(self, job: int, where: Where) -> bool:
        capacity, shape, node = self._gpus.draft.capacity, self._view.shape(job), where[0]
        if self._gpus.is_kept(where):
            return False
        if not capacity.allowed(shape) >> node & 1:
            return False
        host = capacity.free_cpus[node] >= shape.cpus and capacity.free_memory[node] >= shape.memory_bytes
        return bool(host) and capacity.up[node] and self._view.nodes.type_of[node] in capacity.types_for(shape)

    def _there(self, where: Where) -> list[int]:
        """Who shares a device, those of this decision included."""
        draft = self._gpus.draft
        placed = ((job, draft.placement(job)) for job in draft.started())
        return [*self._before.get(where, ()), *(job for job, held in placed if held and where in held.devices())]

    @cached_property
    def _before(self) -> dict[Where, list[int]]:
        found: dict[Where, list[int]] = {}
        for job, held in self._view.placed.items():
            for where in held.devices() if held.sharing is not Sharing.EXCLUSIVE else ():
                found.setdefault(where, []).append(job)
        return found

    def _cost_beside(self, job: int, placement: Placement, there: list[int], line: Sequence[int]) -> float | None:
        """What sharing costs a job and those who are there before; None if it slows one of them down too much."""
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
        return self.cost(placement.grants[0].node, share, time_s, len(line)) + self._terms.time_worth * lost_s
