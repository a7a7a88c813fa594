"""A job's believed speed; unknown where the rate model fails or gives no number."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwise.core import rates
from gpuwise.core.commands import Placement
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.policies.placing.eligible import of_one_type

LAST_FEW = 10


def speed(view: ClusterView, job: int, placement: Placement) -> float:
    """How fast a job is believed to be on a placement, alone there."""
    return speeds(view, (job,), (placement,), ((),))[0]


def speeds(
    view: ClusterView,
    jobs: Sequence[int],
    placements: Sequence[Placement],
    residents: Sequence[Sequence[int]],
    surely: bool = False,
) -> list[float]:
    """How fast jobs are believed to be, relative to what their durations are for.

    NaN where it is unknown: the model failed, or gave no number or one below 0. A speed of 0 is known. ``surely``
    asks for the lower ends of intervals, where the model has them.
    """
    found = rates.believed(view.rates, jobs, placements, residents)
    durations, steps = view.jobs.duration_s, view.jobs.steps
    return [
        rate * durations.item(job) / steps.item(job)
        for job, rate in zip(jobs, found.lows if surely else found, strict=True)
    ]


def start_where_it_runs(draft: Draft, job: int) -> bool:
    """Starts a job where the placer finds room, on a GPU type on which it is not believed to make no progress."""
    view, shape = draft.view, draft.view.shape(job)
    found = None if shape.id in draft.closed else draft.find(job)
    if found is None:
        draft.closed.add(shape.id)
        return False
    if rates.progresses(speed(view, job, found)):
        return draft.start(job, found)
    for code in draft.capacity.types_for(shape):
        found = view.placer(draft.capacity, of_one_type(shape, view.nodes.types, code), shape.gpus)
        if found is not None and rates.progresses(speed(view, job, found)):
            return draft.start(job, found)
    return False


def time_left_s(view: ClusterView, job: int, at_speed: float) -> float:
    """Believed time a job still needs at a speed; infinite where it makes no progress, or that is unknown.

    A job that should have ended and still runs is assumed to need as long again.
    """
    return rates.time_left_s(view.work_left_s(job) or view.jobs.duration_s.item(job), at_speed)


def time_between_jobs_s(view: ClusterView) -> float:
    """Mean time between submissions per GPU, if they continue at the pace of the last few."""
    submitted = view.column("submit_s")[-LAST_FEW:]
    passed_s = view.now_s - float(submitted.min(initial=view.now_s))
    gpus = int(view.nodes.gpus[: len(view.nodes)].sum())
    return max(passed_s / max(1, len(submitted)) * gpus, 1.0)
