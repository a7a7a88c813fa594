"""A policy of your own beside gpuwise's: python examples/my_policy.py.

It ranks jobs by their estimated GPU time, and reserves a few GPUs for short jobs that are submitted later: a longer
job that would leave fewer idle waits, unless nothing runs at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import gpuwise


@dataclass(frozen=True)
class LeastWorkWithSpare:
    """The job with the least GPU time left ranks first; some GPUs are reserved for short jobs."""

    name = "least-work-with-spare"
    wakes_on = gpuwise.CAPACITY_CHANGES
    spare: int = 2
    """GPUs that only short jobs may take."""
    short_s: float = 3600.0

    def rank(self, view: gpuwise.ClusterView, job: int) -> float:
        return view.time_left_s(job) * view.shape(job).gpus

    def decide(self, view: gpuwise.ClusterView, rng: np.random.Generator) -> gpuwise.Decision:
        draft = view.draft()
        for job in draft.waiting():
            if view.time_left_s(job) <= self.short_s or self.leaves_spare(draft, job):
                draft.start(job)
        return draft.seal()

    def leaves_spare(self, draft: gpuwise.Draft, job: int) -> bool:
        idle = sum(draft.capacity.idle_total)
        nothing_runs = not draft.view.placed and not draft.commands
        return nothing_runs or idle - draft.view.shape(job).gpus >= self.spare


def main() -> None:
    trace = gpuwise.read_trace("gen:gavel?jobs=500&rate=1.2&seed=1")
    for policy in ("fifo", "sjf", LeastWorkWithSpare(spare=0), LeastWorkWithSpare(spare=2)):
        result = gpuwise.simulate(trace, "4x8:V100", policy)
        jobs = result.to_frame()
        short = jobs.filter(jobs["gpu_s"] <= 3600.0 * jobs["gpus"])
        print(f"{result}; short jobs wait {short['queue_s'].mean():,.0f} s")


if __name__ == "__main__":
    main()
