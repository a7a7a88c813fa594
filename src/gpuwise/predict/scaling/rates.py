"""The rate of a job on another number of GPUs or nodes than declared, by the scaling predictor."""

from __future__ import annotations

import math

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.commands import Placement
from gpuwise.core.job.table import JobTable
from gpuwise.core.rates import LinearScaling
from gpuwise.predict.base import Predictor

_ROUNDS = 20
"""Rounds in which the step time on one GPU is found; each leaves a small part of the error of the one before."""


class PredictedScaling:
    """Data-parallel scaling by the predictor; its answers are cached. Linear where a job's step time is not known.

    The predictor gives the step time T(g, n) on g GPUs of n nodes, with the same batch on each GPU, from that on one
    GPU. With the declared number of GPUs g₀ on the fewest nodes n₀ with that number, a job's rate is

        g/g₀ · T(g₀, n₀)/T(g, n)

    times that on what it requests. The lower end takes T(g, n) at its upper end, unless g and n are as declared.
    """

    def __init__(self, jobs: JobTable, nodes: NodeTable, predictor: Predictor, coverage: float) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._linear = LinearScaling(jobs)
        self._predictor = predictor
        self._coverage = coverage
        self._known: dict[tuple[float, int, int, int, int], tuple[float, float]] = {}

    def factor(self, job: int, placement: Placement, low: bool) -> float:
        """Its rate on a placement as a multiple of that on what it requests."""
        linear = self._linear.factor(job, placement, low)
        declared, gpus = self._jobs.shape_by_row[job].gpus, placement.gpus
        nodes = len({grant.node for grant in placement.grants})
        fewest = self._fewest_nodes(declared)
        step_s = self._step_s(job)
        if step_s == 0 or (gpus, nodes) == (declared, fewest) or min(gpus, declared) < 1:
            return linear
        key = (step_s, declared, fewest, gpus, nodes)
        if key not in self._known:
            self._known[key] = self._estimate(*key)
        value, least = self._known[key]
        longer = least if low else value
        return linear / longer if longer == longer else (0.0 if low else linear)

    def _step_s(self, job: int) -> float:
        """A job's step time as declared, to two digits; 0 where it is not known."""
        steps, duration_s = self._jobs.steps.item(job), self._jobs.duration_s.item(job)
        known = self._jobs.steps_known.item(job) and 0 < duration_s < math.inf
        return float(f"{duration_s / steps:.1e}") if known else 0.0

    def _fewest_nodes(self, gpus: int) -> int:
        count = len(self._nodes)
        largest = int(self._nodes.gpus[:count].max(initial=1)) if count else 1
        return math.ceil(gpus / max(1, largest))

    def _estimate(self, step_s: float, declared: int, fewest: int, gpus: int, nodes: int) -> tuple[float, float]:
        """The step time on these GPUs over the declared one: expected, and at most; NaN if unknown."""
        try:
            alone_s = self._alone_s(step_s, declared, fewest)
            made = self._predictor.estimate(_sizes(alone_s, gpus, nodes), self._coverage)
            value, most = float(made.value[0]) / step_s, float(made.high[0]) / step_s
        except Exception:  # a predictor that fails must not stop a cluster: scaling is unknown
            return math.nan, math.nan
        return (value, most) if 0 < value <= most < math.inf else (math.nan, math.nan)

    def _alone_s(self, step_s: float, gpus: int, nodes: int) -> float:
        """The step time on one GPU from which the predictor gives the declared one on ``gpus``."""
        alone_s = step_s
        for _ in range(_ROUNDS if gpus > 1 else 0):
            predicted_s = float(self._predictor.estimate(_sizes(alone_s, gpus, nodes), self._coverage).value[0])
            alone_s *= step_s / predicted_s
        return alone_s


def _sizes(step_s: float, gpus: int, nodes: int) -> dict[str, np.ndarray]:
    return {"step_time_s": np.array([step_s]), "gpus": np.array([float(gpus)]), "nodes": np.array([float(nodes)])}
