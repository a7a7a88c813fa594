"""The rate of a job that shares its GPUs, by the interference predictor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.table import JobTable
from gpuwise.core.rates import DeclaredSharing, turn_frac
from gpuwise.predict.base import Floats, Predictor
from gpuwise.predict.sharing.contention import TIME_SLICE


class Kind(NamedTuple):
    """The features of a job for the predictor; jobs of one kind are predicted once."""

    model: str
    batch_per_gpu: int
    step_time_s: float
    """0 where it is not known."""
    gpu_util_frac: float


class PredictedSharing:
    """Jobs slowed by their neighbours as an interference predictor estimates; its answers are cached.

    The predictor is applied to pairs, since only they were measured, in the mode in which they share: time slices for
    ``TIME_SLICE``, and for ``SHARED`` what ``shared_by`` says. With the odds 1/s − 1 against each neighbour, for a
    speed s beside that one only, a job beside several runs at 1/(1 + Σ odds) of its speed alone, as in `Interference`.
    That is a rule and not measured, so the lower end lets each neighbour slow the job by its whole factor:
    1/Π(1 + odds), at the lower ends of s.

    Where the predictor fails, or a utilization is not known, rates are as declared and their lower ends are 0.
    """

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        predictor: Predictor,
        coverage: float,
        shared_by: str = TIME_SLICE,
        switch_s: float = 0.0,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._declared = DeclaredSharing(jobs, nodes, switch_s=switch_s)
        self._pairs: dict[tuple[str, str], PairOdds] = {}
        self._kinds: dict[int, tuple[tuple[float, float, float], Kind | None]] = {}
        self._predictor = predictor
        self._coverage = coverage
        self._switch_s = switch_s
        self._modes = {Sharing.TIME_SLICE: TIME_SLICE, Sharing.SHARED: shared_by}

    def rate(self, alone: float, job: int, placement: Placement, beside: Sequence[int], low: bool) -> float:
        """Its rate beside others, of the one that it would have alone on whole GPUs."""
        if not beside or placement.sharing not in self._modes:
            return self._declared.rate(alone, job, placement, (), low)
        kinds = [kind for kind in map(self._kind, (job, *beside)) if kind is not None]
        longer = math.nan
        if len(kinds) == 1 + len(beside):
            pairs = self._on(placement)
            longer = (pairs.most if low else pairs.expected)(kinds[0], kinds[1:])
        if longer != longer:
            return 0.0 if low else self._declared.rate(alone, job, placement, beside, low)
        return alone / longer * turn_frac(placement, self._switch_s)

    def _on(self, placement: Placement) -> PairOdds:
        nodes = self._nodes
        key = (nodes.types[nodes.type_of[placement.grants[0].node]], self._modes[placement.sharing])
        if key not in self._pairs:
            self._pairs[key] = PairOdds(*key, self._predictor, self._coverage)
        return self._pairs[key]

    def _kind(self, job: int) -> Kind | None:
        """The features of a job; None if its utilization is not known."""
        jobs = self._jobs
        steps = jobs.steps.item(job) if jobs.steps_known.item(job) else 0.0
        given = (jobs.gpu_util_frac.item(job), jobs.duration_s.item(job), steps)
        known = self._kinds.get(job)
        if known is None or known[0] != given:
            known = self._kinds[job] = (given, self._new_kind(job, *given))
        return known[1]

    def _new_kind(self, job: int, util: float, duration_s: float, steps: float) -> Kind | None:
        if not 0 <= util <= 1:
            return None
        step_time_s = float(f"{duration_s / steps:.1e}") if steps else 0.0
        return Kind(self._jobs.value("model", job), self._jobs.batch_per_gpu.item(job), step_time_s, round(util, 2))


class PairOdds:
    """The odds of each kind of job against each other kind on one type of GPU, predicted when a kind first occurs."""

    def __init__(self, gpu: str, mode: str, predictor: Predictor, coverage: float) -> None:
        self._gpu = gpu
        self._mode = mode
        self._predictor = predictor
        self._coverage = coverage
        self._number: dict[Kind, int] = {}
        self._expected: Floats = np.full((64, 64), np.nan)
        self._most: Floats = np.full((64, 64), np.nan)

    def expected(self, job: Kind, others: Sequence[Kind]) -> float:
        """How much longer a job takes beside others, as expected; NaN if that is not known."""
        pairs = [(self._number_of(job), self._number_of(other)) for other in others]
        return 1.0 + sum(self._expected.item(pair) for pair in pairs)

    def most(self, job: Kind, others: Sequence[Kind]) -> float:
        """How much longer a job takes at most."""
        pairs = [(self._number_of(job), self._number_of(other)) for other in others]
        return math.prod(1.0 + self._most.item(pair) for pair in pairs)

    def _number_of(self, kind: Kind) -> int:
        known = self._number.get(kind)
        if known is None:
            known = self._number[kind] = len(self._number)
            if known == len(self._expected):
                self._expected, self._most = (np.pad(each, (0, known), constant_values=np.nan)
                                              for each in (self._expected, self._most))  # fmt: skip
            self._add(kind)
        return known

    def _add(self, kind: Kind) -> None:
        """Predicts how a kind runs beside every kind so far, itself too, and they beside it."""
        others = list(self._number)
        pairs = [each for other in others for each in (kind, other)]
        columns = {
            "group": np.repeat(np.arange(len(others)), 2),
            "gpu": [self._gpu] * len(pairs),
            "mode": [self._mode] * len(pairs),
            "model": [each.model for each in pairs],
            "batch_size": [each.batch_per_gpu for each in pairs],
            "step_time_s": [each.step_time_s or np.nan for each in pairs],
            "gpu_util_frac": [each.gpu_util_frac for each in pairs],
        }
        try:
            made = self._predictor.estimate(columns, self._coverage)
        except Exception:  # a predictor that fails must not stop a cluster: the odds stay unknown
            return
        at, count = self._number[kind], len(others)
        for table, speed in ((self._expected, made.value), (self._most, made.low)):
            odds = 1.0 / np.where((speed > 0) & (speed <= 1), speed, np.nan) - 1.0
            table[at, :count], table[:count, at] = odds[0::2], odds[1::2]
