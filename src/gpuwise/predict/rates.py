"""The rate model of policies: rates as declared, with predicted scaling and slowdown of jobs that share a GPU."""

from __future__ import annotations

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.job.table import JobTable
from gpuwise.core.rates import ComposedRates, LinearScaling, Scaling
from gpuwise.predict.base import COVERAGE, Predictor
from gpuwise.predict.registry import load
from gpuwise.predict.scaling.rates import PredictedScaling
from gpuwise.predict.sharing.contention import TIME_SLICE
from gpuwise.predict.sharing.rates import PredictedSharing


class InterferenceRates(ComposedRates):
    """Rates as declared, slowed by neighbours as an interference predictor estimates; see `PredictedSharing`.

    ``lows`` are the lower ends, and 0 where a predictor fails or a job's utilization is not known.
    ``shared_by`` says how jobs share a GPU at the same time in this world: ``time_slice`` for plain process sharing,
    or ``mps``. Scaling is linear unless another is given.
    """

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        predictor: Predictor | None = None,
        coverage: float = COVERAGE,
        *,
        shared_by: str = TIME_SLICE,
        scaling: Scaling | None = None,
        switch_s: float = 0.0,
    ) -> None:
        chosen = predictor or load("interference").predictor
        sharing = PredictedSharing(jobs, nodes, chosen, coverage, shared_by, switch_s)
        super().__init__(jobs, nodes, scaling or LinearScaling(jobs), sharing)


class PredictedRates(InterferenceRates):
    """Rates by the shipped predictors of interference and of scaling over GPUs and nodes."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        coverage: float = COVERAGE,
        *,
        shared_by: str = TIME_SLICE,
        switch_s: float = 0.0,
    ) -> None:
        scaling = PredictedScaling(jobs, nodes, load("scaling").predictor, coverage)
        super().__init__(jobs, nodes, None, coverage, shared_by=shared_by, scaling=scaling, switch_s=switch_s)
