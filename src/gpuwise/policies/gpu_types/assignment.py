"""Which waiting jobs start on which GPU type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Grant, Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.gpu_types.gains import (
    RATES,
    JobGroup,
    demand_by_kind,
    groups,
    oldest_and_newest,
    outlook,
    wanted_milli,
)
from gpuwise.policies.gpu_types.prices import added_prices, log_prices, shares
from gpuwise.policies.placing.eligible import of_one_type

MOST_LOG_PRICE = math.log(2)
"""A GPU that is twice as fast is always worth taking."""
EQUAL_COST = 1e-6
"""A job belongs on a GPU type if it costs at most this much more there than elsewhere."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Where and when a job that does not fit yet will start, if running jobs end when they are believed to."""

    job: int
    placement: Placement
    at_s: float


class Assignment:
    """Starts waiting jobs on a draft, each on the GPU type that is best for all jobs together."""

    def __init__(self, draft: Draft, signal: str = RATES) -> None:
        self.draft = draft
        self._signal = signal
        self._full: set[tuple[int, int]] = set()
        """Shapes for which a GPU type has no room left."""
        self._reserved: Reserved | None = None

    # -- by gain -------------------------------------------------------------------------------------------------

    def start_by_gain(self, in_order: bool) -> None:
        """Starts the jobs that use idle GPUs best: on each type those with the largest advantage there over elsewhere.

        While jobs queue for GPUs the advantage is a ratio of times, else a difference in seconds. With ``in_order``,
        queued jobs that belong on a type start there in the order of submission.
        """
        view = self.draft.view
        queued = wanted_milli(view) > WHOLE_GPU_MILLI * sum(self.draft.capacity.idle_total)
        queue = [group for group in groups(view, self._signal, each=not queued) if group.outlook.by_speed]
        pairs = []
        for number, (group, costs) in enumerate(zip(queue, self._costs(queue, queued, in_order), strict=True)):
            for code in self._open_to(group):
                cost = costs[code] - min((each for other, each in enumerate(costs) if other != code), default=math.inf)
                cost = max(cost, EQUAL_COST) if in_order and queued else cost
                pairs.append((cost, group.lane[group.at][1], number, code))
        for _, _, number, code in sorted(pairs):
            self._start_group(queue[number], code)

    def _start_group(self, group: JobGroup, code: int) -> None:
        """Starts jobs of a group on a GPU type until one does not fit."""
        for at in range(group.at, group.end):
            job = group.lane[at][1]
            if self._closed(job, code):
                return
            if self.draft.placement(job) is None:
                look = outlook(self.draft.view, job, self._signal)  # its own: others in the group are only similar
                if look.times_s[code] < math.inf and not self._start(job, code, look.known):
                    return

    def _open_to(self, group: JobGroup) -> list[int]:
        """The GPU types that a group's jobs can run on and that may have room."""
        shape = self.draft.view.shape(group.lane[group.at][1])
        idle = self.draft.capacity.idle_total
        return [code for code in group.outlook.by_speed if not shape.whole or idle[code] >= shape.gpus]

    def _costs(self, queue: Sequence[JobGroup], queued: bool, in_order: bool) -> list[list[float]]:
        """What each group costs on each type: its time there, with what the GPU is worth to other jobs."""
        times = [group.outlook.times_s for group in queue]
        if not queued:
            factors = self._price_factors()
            times = [tuple(time_s * factor for time_s, factor in zip(row, factors, strict=True)) for row in times]
        # Of two types, prices add the same to every difference; they only decide which jobs belong on which.
        several = len(self.draft.view.nodes.types) > (1 if in_order and queued else 2)
        prices = self._prices(queue, times, queued) if several and queue else ()
        return [
            [
                (math.log(max(time_s, 1e-9)) if queued else time_s) + (prices[code] if prices else 0.0)
                for code, time_s in enumerate(row)
            ]
            for row in times
        ]

    def _price_factors(self) -> list[float]:
        """How many times as fast a GPU type must be to be taken while other types are idle.

        That is its price to the running jobs, which future ones are assumed to resemble; the more of its GPUs are idle,
        the less.
        """
        view, service = self.draft.view, self._in_service()
        demand = demand_by_kind(view, self._signal) if len(service) > 1 else {}
        kinds = sorted(demand)
        prices = log_prices(tuple(kinds), shares([demand[kind] for kind in kinds]), tuple(service)) if kinds else ()
        if not prices:
            return [1.0] * len(service)
        busy = [1 - idle / gpus if gpus else 1.0 for idle, gpus in zip(view.capacity.idle_total, service, strict=True)]
        above = [min(price - min(prices), MOST_LOG_PRICE) for price in prices]
        return [math.exp(price * part) for price, part in zip(above, busy, strict=True)]

    def _prices(self, queue: Sequence[JobGroup], times: Sequence[tuple[float, ...]], queued: bool) -> Sequence[float]:
        wanted = [group.gpus for group in queue]
        if queued:
            return log_prices(tuple(times), shares(wanted), tuple(self._in_service()))
        idle = self.draft.capacity.idle_total
        first = [0.0] * len(idle)
        for gpus, row in zip(wanted, times, strict=True):
            first[min(range(len(row)), key=row.__getitem__)] += gpus
        if all(gpus <= room for gpus, room in zip(first, idle, strict=True)):
            return ()  # every job can have its best type
        return added_prices(tuple(times), tuple(wanted), tuple(map(float, idle)))

    # -- fair, and even ------------------------------------------------------------------------------------------

    def start_passed(self, passes: int) -> None:
        """Starts jobs that ``passes`` later ones have passed; for the first that does not fit, GPUs are reserved."""
        view = self.draft.view
        for job in _passed(view, passes):
            look = outlook(view, job, self._signal)
            if any(self._start(job, code, look.known) for code in look.by_speed) or self._reserved is not None:
                continue
            find = partial(self._find_any, view.shape(job), look.by_speed)
            self._reserved = _reserve(self.draft, job, find)

    def start_evenly(self) -> None:
        """Starts jobs in order, each on the type of which the largest part is idle."""
        draft, service = self.draft, self._in_service()
        for job in draft.waiting():
            idle = draft.capacity.idle_total
            look = outlook(draft.view, job)
            spread = sorted(look.by_speed, key=lambda code: (-idle[code] / max(service[code], 1.0), code))
            shape = draft.view.shape(job)
            started = any(self._start(job, code, look.known) for code in spread)
            if not started and all(self._closed(job, code) for code in draft.capacity.types_for(shape)):
                draft.closed.add(shape.id)

    def _in_service(self) -> list[float]:
        """GPUs of each type on nodes in service."""
        view = self.draft.view
        nodes, capacity = view.nodes, view.capacity
        count = len(nodes)
        gpus = np.where(np.asarray(capacity.up[:count]), nodes.gpus[:count], 0)
        found = np.bincount(nodes.gpu_type[:count], gpus, minlength=len(nodes.types))
        for node, shut in capacity.shut.items():
            if capacity.up[node]:
                found[nodes.type_of[node]] -= shut.bit_count()
        return [float(each) for each in found]

    # -- one job on one type -------------------------------------------------------------------------------------

    def _start(self, job: int, code: int, known: bool) -> bool:
        """Starts a job on a GPU type if there is room: alone if its speed is unknown, where it allows that."""
        if self._closed(job, code):
            return False
        shape = self.draft.view.shape(job)
        room = self.draft.capacity if self._reserved is None else _without(self.draft, self._reserved)
        found = self._find(room, shape, code, alone=not known and shape.alone)
        if found is None:
            if known:
                self._full.add((shape.id, code))
            return False
        return self.draft.start(job, found)

    def _closed(self, job: int, code: int) -> bool:
        return (self.draft.view.shape(job).id, code) in self._full

    def _find_any(self, shape: Shape, codes: Sequence[int], capacity: Capacity) -> Placement | None:
        """Room on the first of some GPU types that has it."""
        return next((found for code in codes if (found := self._find(capacity, shape, code))), None)

    def _find(self, capacity: Capacity, shape: Shape, code: int, alone: bool = False) -> Placement | None:
        """Room on one GPU type, as the placement in use finds it."""
        narrow = of_one_type(shape, self.draft.view.nodes.types, code, alone)
        return self.draft.view.placer(capacity, narrow, shape.gpus)

    def explain(self, job: int) -> Reason:
        """Why a job waits."""
        view, reason = self.draft.view, self.draft.explain(job)
        look = outlook(view, job, self._signal)
        gpus = view.shape(job).gpus
        if not look.by_speed and reason.code not in (Why.NEVER_FITS, Why.NO_SUCH_NODE):
            return Reason(Why.NO_SPEED)
        if reason.code not in (Why.NO_ROOM, Why.NO_SHARE, Why.NOT_CHOSEN):
            return reason
        reserved = self._reserved
        if reserved is not None and reserved.job != job and reason.code is Why.NOT_CHOSEN:
            return Reason(Why.RESERVED, {"ahead": view.job_id(reserved.job), "at_s": reserved.at_s})
        if not look.known:
            return Reason(Why.UNFORESEEN, {"gpus": gpus})
        old, new = oldest_and_newest(view.nodes)
        if old == new or max(look.times_s[old], look.times_s[new]) == math.inf:
            return reason
        types, gain = view.nodes.types, look.times_s[old] / look.times_s[new]
        return Reason(Why.GAIN, {"gpus": gpus, "gain": gain, "new": types[new], "old": types[old]})


def _reserve(draft: Draft, job: int, find: Callable[[Capacity], Placement | None]) -> Reserved | None:
    """The first room that will be free for a job; None if there is none even when all running jobs have ended."""
    view, then = draft.view, draft.capacity.fork()
    for remaining_s, other in sorted((view.time_left_s(other), other) for other in view.placed):
        if remaining_s == math.inf:
            return None
        then.give(view.placed[other], view.shape(other))
        placement = find(then)
        if placement is not None:
            return Reserved(job, placement, view.now_s + remaining_s)
    return None


def _without(draft: Draft, reserved: Reserved) -> Capacity:
    """What other jobs may use: what is free, except idle devices that are reserved."""
    capacity = draft.capacity.fork()
    bare = replace(draft.view.shape(reserved.job), cpus=0.0, memory_bytes=0.0, roles=())
    for node, devices, _ in reserved.placement.grants:
        if idle := devices & capacity.idle[node]:
            capacity.take(Placement((Grant(node, idle),)), bare)
    return capacity


def _passed(view: ClusterView, passes: int) -> list[int]:
    """Waiting jobs that ``passes`` later ones have passed, in the order of submission."""
    started = view.column("placements") > 0
    later = started[::-1].cumsum()[::-1] - started
    due = view.column("status")[: int(np.searchsorted(-later, -passes, side="right"))]
    rows = np.flatnonzero((due == Status.PENDING) | (due == Status.SUSPENDED))
    return [job for job in rows.tolist() if job in view.waiting]
