"""How fast a job runs where it is, as parts that compose; and how long that will take.

    rate = declared steps per second × speed on the GPU type × scaling over GPUs and nodes × sharing

Unknown (NaN) and stalled (0) are rates like any other. `DeclaredRates` is made of what is declared alone; a part that
knows better takes the place of the declared one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.commands import Placement
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import EXCLUSIVE, Sharing, slice_name
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import RateModel
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI

_RUNNING = int(Status.RUNNING)


class Rates(list[float]):
    """Steps per second, one per job: NaN where nothing is known, 0 where a job makes no progress."""

    __slots__ = ()

    @property
    def lows(self) -> Sequence[float]:
        """The lower ends of their intervals, 0 where they are not known; here the rates themselves."""
        return self


class BoundedRates(Rates):
    """Rates with lower ends."""

    __slots__ = ("_lows",)

    def __init__(self, values: Iterable[float], lows: Sequence[float]) -> None:
        super().__init__(values)
        self._lows = lows

    @property
    def lows(self) -> Sequence[float]:
        """The lower ends of their intervals, 0 where they are not known."""
        return self._lows


def time_left_s(left: float, pace: float) -> float:
    """Time until nothing is left, at a pace in the same unit per second; infinite where that is 0 or not known."""
    if left <= 0:
        return 0.0
    return left / pace if pace > 0 else math.inf


def progresses(rate: float) -> bool:
    """Whether a job makes progress at a rate; one that is not known is not taken for 0."""
    return rate != 0


def believed(
    model: RateModel, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
) -> Rates:
    """What a model says, safely: NaN where it fails, or gives no number or one below 0."""
    try:
        found = model.rates(jobs, placements, residents)
        if type(found) is Rates and len(found) == len(jobs) and all(0 <= rate < math.inf for rate in found):
            return found
        values, lows = [float(rate) for rate in found], [float(rate) for rate in getattr(found, "lows", found)]
        if not len(values) == len(lows) == len(jobs):
            raise ValueError(f"{len(values)} rates, {len(lows)} lower ends for {len(jobs)} jobs")
    except Exception:  # a predictor that fails must not keep jobs waiting
        values = lows = [math.nan] * len(jobs)
    return BoundedRates(map(_known, values), list(map(_known, lows)))


def _known(rate: float) -> float:
    return rate if 0 <= rate < math.inf else math.nan


def steps_made(jobs: JobTable, job: int, at_s: float) -> float:
    """Steps that a job with GPUs, or that has just left them, is estimated to have done by a time."""
    made = jobs.steps_done.item(job) + jobs.rate.item(job) * max(0.0, at_s - jobs.since_s.item(job))
    return float(min(made, jobs.steps.item(job)))


def steps_left(jobs: JobTable, job: int, now_s: float) -> float:
    """Steps a job has still to do, with those it is believed to have done since it last reported."""
    left: float = jobs.steps.item(job) - jobs.steps_done.item(job)
    if jobs.status.item(job) == _RUNNING:
        left = max(0.0, left - jobs.rate.item(job) * (now_s - jobs.since_s.item(job)))
    return left


# -- the parts ---------------------------------------------------------------------------------------------------------


class Scaling(Protocol):
    """What other GPUs than declared, or more nodes than needed, make of a job's rate."""

    def factor(self, job: int, placement: Placement, low: bool) -> float:
        """Its rate on a placement as a multiple of that on what it asks for; ``low`` is the lower end of that."""
        ...


class SharingPart(Protocol):
    """What sharing its GPUs makes of a job's rate."""

    def rate(self, alone: float, job: int, placement: Placement, beside: Sequence[int], low: bool) -> float:
        """Its rate beside others, of the one that it would have alone on whole GPUs; ``low`` is the lower end."""
        ...


class LinearScaling:
    """As many times the rate as there are times the GPUs, on one node or many: where nothing better is known."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def factor(self, job: int, placement: Placement, low: bool) -> float:
        """GPUs over GPUs."""
        gpus, declared = placement.gpus, self._jobs.shape_by_row[job].gpus
        return gpus / declared if gpus != declared else 1.0


class DeclaredSharing:
    """Sharing by declared utilizations and shares.

    In a time slice a job gets its share of the time, less what switching takes: ``switch_s`` of each of its turns. On a
    MIG slice that its ``speeds`` do not name, the part of its time in which the GPU is busy grows as the GPU shrinks.
    Jobs that share a device at the same time slow each other when their utilizations add up to more than one GPU.
    """

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        gpu_util_frac: Sequence[float] | None = None,
        switch_s: float = 0.0,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._gpu_util_frac = gpu_util_frac
        self._switch_s = switch_s

    def rate(self, alone: float, job: int, placement: Placement, beside: Sequence[int], low: bool) -> float:
        """By how the devices are shared."""
        if placement.sharing is Sharing.SHARED:
            load = sum(self._utilization(each) for each in (job, *beside))
            return alone / max(1.0, load)
        if placement.sharing is Sharing.MIG and own_slice(self._jobs, self._nodes, job, placement) is not None:
            return alone
        milli = self._jobs.shape_by_row[job].milli
        share = min(1.0, placement.milli / milli)
        if placement.sharing is Sharing.MIG:  # Amdahl's law: only the time in which the GPU is busy grows on a slice
            busy = min(1.0, self._utilization(job) * WHOLE_GPU_MILLI / milli)
            return alone / (1.0 - busy + busy / share)
        return alone * share * turn_frac(placement, self._switch_s)

    def _utilization(self, job: int) -> float:
        own = self._gpu_util_frac
        known: float = self._jobs.gpu_util_frac.item(job) if own is None else own[job]
        return known if known == known else self._jobs.shape_of(job).milli / WHOLE_GPU_MILLI


def turn_frac(placement: Placement, switch_s: float) -> float:
    """The part of a turn that is left when ``switch_s`` of it goes to switching; all where no turns are given."""
    return max(0.0, 1.0 - switch_s / placement.quantum_s) if placement.quantum_s else 1.0


def own_slice(jobs: JobTable, nodes: NodeTable, job: int, placement: Placement) -> float | None:
    """A job's own speed on the MIG slice of a placement, if it has declared one."""
    if placement.sharing is not Sharing.MIG or not (own := jobs.speeds.item(job)):
        return None
    gpu = nodes.types[nodes.type_of[placement.grants[0].node]]
    speeds: Mapping[str, float] = jobs.speed_tables[own]
    return speeds.get(slice_name(gpu, placement.milli))


# -- the models --------------------------------------------------------------------------------------------------------


class ComposedRates:
    """Rates made of parts: as declared, times the speed of the GPU type, times scaling, times sharing.

    A job's own ``speeds`` come before the speed of the GPU type; a gang is as fast as its slowest GPU. Durations may be
    given apart from the table: what is true need not be what is declared.
    """

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        scaling: Scaling,
        sharing: SharingPart,
        durations_s: Array | None = None,
        *,
        sure: bool = False,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._scaling = scaling
        self._sharing = sharing
        self._durations_s = durations_s
        self._sure = sure
        """Whether no part knows lower ends, so that they need not be asked for."""

    def rates(self, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]) -> Rates:
        """Steps per second of each job on its placement beside its residents."""
        if self._sure and len(jobs) == 1:  # by far the most common
            return Rates((self.rate(jobs[0], placements[0], residents[0], False),))
        asked = list(zip(jobs, placements, residents, strict=True))
        values = [self.rate(*each, False) for each in asked]
        return Rates(values) if self._sure else BoundedRates(values, [self.rate(*each, True) for each in asked])

    def rate(self, job: int, placement: Placement, beside: Sequence[int] = (), low: bool = False) -> float:
        """Steps per second of one job, or their lower end."""
        table = self._jobs
        durations = table.duration_s if self._durations_s is None else self._durations_s
        rate: float = table.steps.item(job) / durations.item(job)
        speeds = self._nodes.type_speed
        if own := table.speeds.item(job):
            rate *= self._own_speed(table.speed_tables[own], job, placement)
        elif len(speeds) == 1:
            rate *= speeds[0]
        else:
            rate *= min([speeds[self._nodes.type_of[grant.node]] for grant in placement.grants])
        grants = placement.grants
        if len(grants) != 1 or grants[0].devices.bit_count() != table.shape_by_row[job].gpus:
            rate *= self._scaling.factor(job, placement, low)
        if placement.sharing is EXCLUSIVE:
            return rate
        return self._sharing.rate(rate, job, placement, beside, low)

    def _own_speed(self, speeds: Mapping[str, float], job: int, placement: Placement) -> float:
        """How fast a job is where it is placed, by its own speeds."""
        sliced = own_slice(self._jobs, self._nodes, job, placement)
        if sliced is not None:
            return sliced
        nodes = self._nodes
        types = {nodes.type_of[grant.node] for grant in placement.grants}
        return min([speeds.get(nodes.types[code], nodes.type_speed[code]) for code in types])


def alone_rates(model: RateModel) -> Callable[[int, Placement], float]:
    """Gives steps per second of one job alone on its devices: what is asked for most."""
    if isinstance(model, ComposedRates) and type(model).rates is ComposedRates.rates:
        return model.rate
    return lambda job, placement: model.rates((job,), (placement,), ((),))[0]


class DeclaredRates(ComposedRates):
    """Rates by what is declared alone: linear in GPUs, sharing by utilizations and shares."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        durations_s: Array | None = None,
        gpu_util_frac: Sequence[float] | None = None,
    ) -> None:
        sharing = DeclaredSharing(jobs, nodes, gpu_util_frac)
        super().__init__(jobs, nodes, LinearScaling(jobs), sharing, durations_s, sure=True)
