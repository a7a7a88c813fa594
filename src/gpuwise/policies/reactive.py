"""Co-location after profiling: a job first runs alone for a minute, and is packed by its observed utilization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.needs import Sharing
from gpuwise.policies.beliefs import start_where_it_runs
from gpuwise.policies.packing.shared_gpus import MOST_JOBS, SharedGpus, check_most_jobs, may_share, reasons, utilization

_ROUNDING = 1e-6


@dataclass(frozen=True)
class Reactive:
    """Profiles each job alone on a GPU for a minute, then moves it beside others (the baseline of Yeung et al.).

    Jobs start by submission on idle GPUs. When jobs wait, those that have been profiled are moved together, the largest
    first, to GPUs where all have been profiled, as `proactive` packs them. A job's utilization is ignored before its
    ``profile_s`` are over.
    """

    name = "reactive"
    wakes_on = CAPACITY_CHANGES
    most_jobs: int = MOST_JOBS
    most_load: float = 1.0
    """What the utilizations of the jobs on a GPU may add up to."""
    profile_s: float = 60.0
    """How long a job runs alone before it may share a GPU."""

    def __post_init__(self) -> None:
        check_most_jobs(self.name, self.most_jobs)
        if not self.most_load > 0:
            raise GpuwiseError(f"policy {self.name!r}: most_load is {self.most_load}; it must be above 0")
        if not self.profile_s >= 0:
            raise GpuwiseError(f"policy {self.name!r}: profile_s is {self.profile_s}; it must be 0 or more")

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs on idle GPUs, and moves profiled jobs together to make GPUs idle for the rest."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        gpus = SharedGpus(draft, self.most_jobs)
        movers = self._movers(view, gpus)
        for job in draft.waiting():
            if not may_share(view.shape(job)):
                start_where_it_runs(draft, job)
            elif not self._beside(view, gpus, job) and not gpus.open(job) and next(movers, None) is not None:
                gpus.open(job)
        waits = Reason(Why.PROFILE, {"profile_s": self.profile_s})
        return draft.seal(self._next_profile(draft), reasons(draft, lambda job: waits))

    def _is_profiled(self, view: ClusterView, job: int) -> bool:
        return self._left_s(view, job) <= _ROUNDING

    def _left_s(self, view: ClusterView, job: int) -> float:
        """How much longer a job has to run until it is profiled."""
        jobs = view.jobs
        held_s = float(jobs.held_s.item(job))
        if job in view.placed:
            held_s += view.now_s - float(jobs.placed_s.item(job))
        return self.profile_s - held_s

    def _beside(self, view: ClusterView, gpus: SharedGpus, job: int) -> bool:
        """Starts a job beside others if it was profiled before it was suspended or requeued."""
        if not self._is_profiled(view, job):
            return False
        fits = gpus.first_fit(job, self.most_load)
        return any(self._all_profiled(view, gpus, gpu) and gpus.join(job, gpu) for gpu in fits)

    def _movers(self, view: ClusterView, gpus: SharedGpus) -> Iterator[int]:
        """Moves one profiled job after the other from a GPU of its own to one with others, the largest first."""
        alone = [here[0] for here in gpus.jobs if len(here) == 1 and may_share(view.shape(here[0]))]
        profiled = [job for job in alone if self._is_profiled(view, job)]
        for job in sorted(profiled, key=lambda job: (-utilization(view, job), job)):
            own = next(gpu for gpu, here in enumerate(gpus.jobs) if job in here)
            if len(gpus.jobs[own]) > 1:
                continue
            for gpu in gpus.first_fit(job, self.most_load):
                if gpu != own and self._all_profiled(view, gpus, gpu) and gpus.move(job, gpu):
                    yield job
                    break

    def _all_profiled(self, view: ClusterView, gpus: SharedGpus, gpu: int) -> bool:
        return all(self._is_profiled(view, job) for job in gpus.jobs[gpu])

    def _next_profile(self, draft: Draft) -> float | None:
        """When the next job will have been profiled."""
        view = draft.view
        sharing = [job for job, at in view.placed.items() if at.sharing is Sharing.SHARED]
        left = [self._left_s(view, job) for job in (*sharing, *draft.started())]
        return min((view.now_s + each for each in left if each > _ROUNDING), default=None)
