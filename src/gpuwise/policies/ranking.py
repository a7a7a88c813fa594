"""What policies that go by a rank share: start in order, and take GPUs from those that rank below."""

from __future__ import annotations

from heapq import merge
from typing import Protocol

import numpy as np

from gpuwise.core.commands import Explain, Placement, Reason, Why
from gpuwise.core.tables import Array
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.core.view import ClusterView, Draft


MARGIN = 1e-3
"""A job ranks below another if by more than this: rounding must not let two jobs drive each other out by turns."""


class Ranking(Protocol):
    """Ranks jobs that wait and jobs that hold GPUs by the same measure; the lowest comes first."""

    def rank(self, view: ClusterView, job: int) -> float:
        """The rank of a waiting job; constant while it waits."""
        ...

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """The ranks, now, of jobs that hold GPUs."""
        ...


def start_in_order(draft: Draft) -> None:
    """Starts waiting jobs in order; one that does not fit lets others pass."""
    for job in draft.waiting():
        draft.start(job)


def start_or_preempt(draft: Draft, ranking: Ranking) -> None:
    """Starts waiting jobs in order; one that does not fit takes the GPUs of those that rank below it."""
    victims: Victims | None = None
    for job in draft.waiting():
        if draft.start(job):
            continue
        if victims is None:
            victims = Victims(draft, ranking)
        victims.make_room(job)


class Victims:
    """The jobs that hold GPUs, worst rank first, and how to take from them no more than is needed."""

    def __init__(self, draft: Draft, ranking: Ranking) -> None:
        self._draft = draft
        holders = draft.view.holders()
        ranks = ranking.ranks(draft.view, holders)
        self._worst = float(ranks.max(initial=-np.inf))
        self._unsorted = (holders, ranks)
        self._jobs: list[int] = []
        self._ranks: list[float] = []
        self._gpus: list[float] = []
        self._gone: set[int] = set()

    def make_room(self, job: int) -> bool:
        """Starts a job in place of lower-ranked ones, if taking all of theirs would be enough."""
        draft = self._draft
        rank = draft.view.waiting.key_of(job) + MARGIN
        if self._worst <= rank:
            return False
        if not self._jobs:
            self._sort()
        if not self._enough(job, rank):
            return False
        mark = draft.mark()
        taken: list[int] = []
        for victim, victim_rank in zip(self._jobs, self._ranks, strict=True):
            if victim_rank <= rank:
                break
            if victim in self._gone:
                continue
            draft.suspend(victim)
            taken.append(victim)
            if draft.start(job):
                self._gone.update(taken)
                # Give back what was taken on the way and turned out not to be needed, best rank first.
                self._gone.difference_update([victim for victim in reversed(taken[:-1]) if draft.keep(victim)])
                return True
        draft.rollback(mark)
        draft.closed.add(draft.view.shape(job).id)
        return False

    def _sort(self) -> None:
        """Worst rank first; among equals the last submitted."""
        holders, ranks = self._unsorted
        order = np.lexsort((-holders, -ranks))
        self._jobs = holders[order].tolist()
        self._ranks = ranks[order].tolist()
        self._gpus = self._draft.view.jobs.held_gpus[holders[order]].tolist()

    def _enough(self, job: int, rank: float) -> bool:
        """Whether the GPUs of the lower-ranked and the idle ones are as many as a job asks for."""
        capacity, shape = self._draft.capacity, self._draft.view.shape(job)
        needed = shape.gpus * shape.milli / WHOLE_GPU_MILLI
        needed -= sum([capacity.idle_total[gpu_type] for gpu_type in capacity.types_for(shape)])
        for victim, victim_rank, gpus in zip(self._jobs, self._ranks, self._gpus, strict=True):
            if needed <= 0 or victim_rank <= rank:
                break
            if victim not in self._gone:
                needed -= gpus
        return needed <= 0


def repack(draft: Draft, ranking: Ranking) -> None:
    """Places everybody anew in the order of rank, moving running jobs where that makes room."""
    view = draft.view
    capacity = view.capacity.fork()
    holders = view.holders()
    ranks = ranking.ranks(view, holders)
    for job in view.placed:
        capacity.give(view.placed[job], view.shape(job))
    running = [(rank, job) for rank, job in zip(ranks.tolist(), holders.tolist(), strict=True)]
    waiting = ((view.waiting.key_of(job), job) for job in draft.waiting())
    moves: dict[int, Placement] = {}
    starts: dict[int, Placement] = {}
    for _, job in merge(sorted(running), waiting):
        found = draft.find_in(capacity, job)
        if found is not None:
            capacity.take(found, view.shape(job))
            (moves if job in view.placed else starts)[job] = found
        elif job in view.placed:
            draft.suspend(job)
        else:
            draft.closed.add(view.shape(job).id)
    moves = {job: found for job, found in moves.items() if found != view.placed[job]}
    if moves:
        draft.rearrange(moves)
    for job, found in starts.items():
        draft.start(job, found)


def outranked(draft: Draft) -> Explain:
    """Reasons under a policy that preempts: the job waits because those who hold the GPUs come first."""

    def explain(job: int) -> Reason:
        reason = draft.explain(job)
        if reason.code is Why.NO_ROOM:
            return Reason(Why.OUTRANKED, reason.numbers)
        return reason

    return explain
