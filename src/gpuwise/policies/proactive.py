"""Co-location by predicted utilization: jobs are packed onto GPUs from the moment they are submitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gpuwise.core.commands import NOTHING, Decision, Reason, Why
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.policies.beliefs import start_where_it_runs
from gpuwise.policies.packing.shared_gpus import MOST_JOBS, SharedGpus, check_most_jobs, may_share, reasons, utilization


@dataclass(frozen=True)
class Proactive:
    """Packs jobs onto GPUs by predicted utilization and memory, the largest first (Yeung et al., HotCloud'20).

    First fit decreasing: the largest job is placed on the first GPU in use whose utilizations add up to no more than
    ``most_load`` with it, that has memory for it and fewer than ``most_jobs`` jobs; else to an idle one. A job for
    several GPUs, or that may not share, or whose utilization is unknown, gets its GPUs alone.
    """

    name = "proactive"
    wakes_on = CAPACITY_CHANGES
    most_jobs: int = MOST_JOBS
    most_load: float = 1.0
    """What the utilizations of the jobs on a GPU may add up to."""

    def __post_init__(self) -> None:
        check_most_jobs(self.name, self.most_jobs)
        if not self.most_load > 0:
            raise GpuwiseError(f"policy {self.name!r}: most_load is {self.most_load}; it must be above 0")

    def rank(self, view: ClusterView, job: int) -> float:
        """The job that is believed to use most of a GPU first."""
        return -utilization(view, job)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs that fit beside others or on an idle GPU, the largest first."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        gpus = SharedGpus(draft, self.most_jobs)
        for job in draft.waiting():
            if not may_share(view.shape(job)):
                start_where_it_runs(draft, job)
                continue
            fits = gpus.first_fit(job, self.most_load)
            if not any(gpus.join(job, gpu) for gpu in fits):
                gpus.open(job)
        return draft.seal(reasons=reasons(draft, partial(self._needs, view)))

    def _needs(self, view: ClusterView, job: int) -> Reason:
        return Reason(Why.NO_PLACE, {"percent": 100 * utilization(view, job), "most": self.most_jobs})
