"""Waiting jobs and idle GPUs of several types: who goes where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.gpu_types.gains import RATES, oldest_and_newest, outlook, speeds
from gpuwise.policies.gpu_types.lots import MOST_KINDS, Lot, lots_of, wanted_milli
from gpuwise.policies.gpu_types.prices import added_prices, log_prices, shares
from gpuwise.policies.gpu_types.reserved import Reserved, reserve, without
from gpuwise.policies.placing.one_type import of_one_type

MOST_DEAR = math.log(2)
"""A GPU that is twice as fast is always worth taking."""
SETTLED = 1e-6
"""A job belongs on a GPU type if it costs at most this much more there than elsewhere."""


class Assignment:
    """Starts waiting jobs on a draft, each on the GPU type that is best for all."""

    def __init__(self, draft: Draft, signal: str = RATES) -> None:
        self.draft = draft
        self._signal = signal
        self._full: set[tuple[int, int]] = set()
        """Shapes that do not fit on a GPU type any more."""
        self._reserved: Reserved | None = None

    # -- by gain -------------------------------------------------------------------------------------------------

    def start_by_gain(self, in_turn: bool) -> None:
        """Starts whom idle GPUs are best used by: on each type those with the largest advantage there over elsewhere.

        While jobs queue for GPUs the advantage is a ratio of times, else a difference in seconds. ``in_turn`` lets
        those in the queue who belong on a type have it in the order they came.
        """
        view = self.draft.view
        queued = wanted_milli(view) > WHOLE_GPU_MILLI * sum(self.draft.capacity.idle_total)
        lots = [lot for lot in lots_of(view, self._signal, each=not queued) if lot.outlook.by_speed]
        pairs = []
        for number, (lot, costs) in enumerate(zip(lots, self._costs(lots, queued, in_turn), strict=True)):
            for code in self._open_to(lot):
                cost = costs[code] - min((each for other, each in enumerate(costs) if other != code), default=math.inf)
                pairs.append((max(cost, SETTLED) if in_turn and queued else cost, lot.lane[lot.at][1], number, code))
        for _, _, number, code in sorted(pairs):
            self._start_lot(lots[number], code)

    def _start_lot(self, lot: Lot, code: int) -> None:
        """Starts jobs of a lot on a GPU type until one does not fit."""
        for at in range(lot.at, lot.end):
            job = lot.lane[at][1]
            if self._closed(job, code):
                return
            if self.draft.placement(job) is None:
                look = outlook(self.draft.view, job, self._signal)  # its own: others in the lot are only like it
                if look.times_s[code] < math.inf and not self._start(job, code, look.known):
                    return

    def _open_to(self, lot: Lot) -> list[int]:
        """The GPU types that a lot's jobs can run on and that may have room."""
        shape = self.draft.view.shape(lot.lane[lot.at][1])
        idle = self.draft.capacity.idle_total
        return [code for code in lot.outlook.by_speed if not shape.whole or idle[code] >= shape.gpus]

    def _costs(self, lots: Sequence[Lot], queued: bool, in_turn: bool) -> list[list[float]]:
        """What each lot costs on each type: its time there, with what the GPU is worth to others."""
        times = [lot.outlook.times_s for lot in lots]
        if not queued:
            dear = self._dearness()
            times = [tuple(time_s * factor for time_s, factor in zip(row, dear, strict=True)) for row in times]
        # Of two types, prices add the same to every difference; they only tell where one begins to belong.
        several = len(self.draft.view.nodes.types) > (1 if in_turn and queued else 2)
        prices = self._prices(lots, times, queued) if several and lots else ()
        return [
            [
                (math.log(max(time_s, 1e-9)) if queued else time_s) + (prices[code] if prices else 0.0)
                for code, time_s in enumerate(row)
            ]
            for row in times
        ]

    def _dearness(self) -> list[float]:
        """How many times as fast a GPU type must be to be taken while others are idle.

        That is its price to the jobs that run now, since those to come will be like them; the less so, the more of its
        GPUs are idle.
        """
        view, service = self.draft.view, self._in_service()
        demand = self._demand() if len(service) > 1 else {}
        kinds = sorted(demand)
        prices = log_prices(tuple(kinds), shares([demand[kind] for kind in kinds]), tuple(service)) if kinds else ()
        if not prices:
            return [1.0] * len(service)
        busy = [1 - idle / gpus if gpus else 1.0 for idle, gpus in zip(view.capacity.idle_total, service, strict=True)]
        return [math.exp(min(price - min(prices), MOST_DEAR) * part) for price, part in zip(prices, busy, strict=True)]

    def _demand(self) -> dict[tuple[float, ...], float]:
        """GPUs held by jobs of each kind, a kind being how slow they are on each type; of many jobs, a sample."""
        view = self.draft.view
        demand: dict[tuple[float, ...], float] = {}
        holders = view.placed_jobs()
        for job in holders[:: len(holders) // MOST_KINDS + 1].tolist():
            found, _ = speeds(view, job, self._signal)
            slowness = tuple(max(round(1 / each, 3), 1e-3) if each else math.inf for each in found)
            if min(slowness) < math.inf:
                demand[slowness] = demand.get(slowness, 0.0) + view.jobs.held_gpus.item(job)
        return demand

    def _prices(self, lots: Sequence[Lot], times: Sequence[tuple[float, ...]], queued: bool) -> Sequence[float]:
        wanted = [lot.gpus for lot in lots]
        if queued:
            return log_prices(tuple(times), shares(wanted), tuple(self._in_service()))
        idle = self.draft.capacity.idle_total
        first = [0.0] * len(idle)
        for gpus, row in zip(wanted, times, strict=True):
            first[min(range(len(row)), key=row.__getitem__)] += gpus
        if all(gpus <= room for gpus, room in zip(first, idle, strict=True)):
            return ()  # everybody can have what is best for him
        return added_prices(tuple(times), tuple(wanted), tuple(map(float, idle)))

    # -- fair, and even ------------------------------------------------------------------------------------------

    def start_passed(self, passes: int) -> None:
        """Starts jobs that so many later ones have passed; for the first that does not fit, GPUs are kept."""
        view = self.draft.view
        for job in _passed(view, passes):
            look = outlook(view, job, self._signal)
            if any(self._start(job, code, look.known) for code in look.by_speed) or self._reserved is not None:
                continue
            find = partial(self._find_any, view.shape(job), look.by_speed)
            self._reserved = reserve(self.draft, job, find)

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
        """GPUs of each type on nodes that are up."""
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
        """Starts a job on a GPU type if there is room: alone if nothing is known of it, where it allows that."""
        if self._closed(job, code):
            return False
        shape = self.draft.view.shape(job)
        room = self.draft.capacity if self._reserved is None else without(self.draft, self._reserved)
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
        kept = self._reserved
        if kept is not None and kept.job != job and reason.code is Why.NOT_CHOSEN:
            return Reason(Why.RESERVED, {"ahead": view.job_id(kept.job), "at_s": kept.at_s})
        if not look.known:
            return Reason(Why.UNFORESEEN, {"gpus": gpus})
        old, new = oldest_and_newest(view.nodes)
        if old == new or max(look.times_s[old], look.times_s[new]) == math.inf:
            return reason
        types, gain = view.nodes.types, look.times_s[old] / look.times_s[new]
        return Reason(Why.GAIN, {"gpus": gpus, "gain": gain, "new": types[new], "old": types[old]})


def _passed(view: ClusterView, passes: int) -> list[int]:
    """Waiting jobs that so many later ones have passed, first submitted first."""
    started = view.column("placements") > 0
    later = started[::-1].cumsum()[::-1] - started
    due = view.column("status")[: int(np.searchsorted(-later, -passes, side="right"))]
    rows = np.flatnonzero((due == Status.PENDING) | (due == Status.SUSPENDED))
    return [job for job in rows.tolist() if job in view.waiting]
