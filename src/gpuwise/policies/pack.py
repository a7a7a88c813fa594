"""Interference-aware packing: a job shares a GPU where that saves more time than it costs in the worst case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gpuwise.core.commands import NOTHING, Decision, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.policies.beliefs import start_where_it_runs
from gpuwise.policies.packing.savings import Savings, Waits, drained_s
from gpuwise.policies.packing.shared_gpus import MOST_JOBS, SharedGpus, check_most_jobs, may_share, reasons


@dataclass(frozen=True)
class Pack:
    """Lets a job share a GPU where the wait it saves outweighs what it and its neighbours lose in the worst case.

    Jobs are placed by submission. One for which a GPU is idle gets it. Another may join the jobs on a GPU if, by the
    lower ends of the believed rates, they get more done together than without it, and if

        wait saved − time the newcomer loses − time its neighbours lose > 0

    where the wait is until a GPU would be free for it alone. When no job waits and GPUs are idle, jobs that share one
    are moved apart, if that saves more than moving costs. Where rates are unknown, every job runs alone.
    """

    name = "pack"
    wakes_on = CAPACITY_CHANGES
    most_jobs: int = MOST_JOBS
    last_first: bool = True
    """Whether jobs that would otherwise end last rank highest: a shorter makespan for slightly longer average JCTs."""
    spread: bool = True
    """Whether jobs are moved apart when GPUs are idle."""
    depth: int = 100
    """The number of waiting jobs that are considered."""
    candidates: int = 2
    """The number of GPUs that each of them is tried on: those with the least load."""

    def __post_init__(self) -> None:
        check_most_jobs(self.name, self.most_jobs)
        for name in ("depth", "candidates"):
            if getattr(self, name) < 1:
                raise GpuwiseError(f"policy {self.name!r}: {name} is {getattr(self, name)}; it must be 1 or more")

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs on idle GPUs, the rest where sharing pays, and moves them apart when there is room."""
        draft = view.draft()
        if not view.waiting:
            if self.spread and any(draft.capacity.idle_total):
                _move_apart(draft, SharedGpus(draft, self.most_jobs))
            return draft.seal() if draft.commands else NOTHING
        unknown: set[int] = set()
        self._start(draft, SharedGpus(draft, self.most_jobs), unknown)
        return draft.seal(reasons=reasons(draft, lambda job: Reason(Why.ALONE if job in unknown else Why.NO_GAIN)))

    def _start(self, draft: Draft, gpus: SharedGpus, unknown: set[int]) -> None:
        view = draft.view
        all_s = drained_s(view) if self.last_first else math.inf
        # A job that takes as long as everything else is the last to end: it ranks highest, and no job joins it.
        last_s = max(all_s, float(view.work_left_of(view.placed_jobs()).max(initial=0.0)))
        queue = sorted(islice(view.waiting, self.depth), key=lambda job: view.work_left_s(job) < last_s)
        closed = {gpu for gpu, here in enumerate(gpus.jobs) if any(view.work_left_s(job) >= all_s for job in here)}
        savings, waits = Savings(view, gpus), None
        for job in queue:
            shares = may_share(view.shape(job))
            if gpus.open(job) if shares else start_where_it_runs(draft, job):
                continue
            waits = waits or Waits(draft)  # once all idle GPUs are allocated
            if shares and waits.next_s > 0 and self._join(gpus, savings, job, waits.next_s, closed, unknown):
                continue
            promised = waits.enqueue(job)
            if view.work_left_s(job) >= last_s:
                closed.update(gpus.at[device] for device in promised if device in gpus.at)

    def _join(
        self, gpus: SharedGpus, savings: Savings, job: int, wait_s: float, closed: set[int], unknown: set[int]
    ) -> bool:
        """Starts a job on the GPU where sharing saves most, if it saves time on any."""
        room = np.flatnonzero(gpus.with_room(job))
        by_load = room[np.argsort(gpus.load[room], kind="stable")].tolist()
        worth = []
        for gpu in [gpu for gpu in by_load if gpu not in closed][: self.candidates]:
            saved_s = savings.of_joining(job, gpu, wait_s)
            if saved_s is None:
                unknown.add(job)
            elif saved_s > 0:
                worth.append((-saved_s, gpu))
        return any(gpus.join(job, gpu) for _, gpu in sorted(worth))


def _move_apart(draft: Draft, gpus: SharedGpus) -> None:
    """Moves jobs from shared GPUs to idle ones while that saves time, those first for which it saves most."""
    savings = Savings(draft.view, gpus)
    while True:
        crowded = [gpu for gpu, here in enumerate(gpus.jobs) if len(here) > 1]
        found = [(savings.of_leaving(job, gpu), job) for gpu in crowded for job in gpus.jobs[gpu]]
        for saved_s, job in sorted(found, key=lambda each: (-each[0], each[1])):
            if saved_s > 0 and gpus.move_to_idle(job):
                break
        else:
            return
