"""Least work first: the job with the least GPU time left ranks first; running jobs are not preempted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwise import CAPACITY_CHANGES, ClusterView, Decision


@dataclass(frozen=True)
class LeastWork:
    """The job with the least GPU time left ranks first; running jobs are not preempted."""

    name = "least-work"
    wakes_on = CAPACITY_CHANGES

    def rank(self, view: ClusterView, job: int) -> float:
        return view.time_left_s(job) * view.shape(job).gpus

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        draft = view.draft()
        for job in draft.waiting():
            draft.start(job)
        return draft.seal()
