"""What policies that rank jobs share: starting in order, and preempting jobs that rank lower."""

from __future__ import annotations

from heapq import merge
from typing import Protocol

import numpy as np

from gpuwise.core.commands import Explain, Grant, Placement, Reason, Why
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.job.shape import Shape
from gpuwise.core.tables import Array

MARGIN = 1e-3
"""A job ranks lower than another if by more than this: rounding must not let two jobs preempt each other in turn."""


class Ranking(Protocol):
    """Ranks waiting and running jobs by the same measure; the smallest value ranks highest."""

    def rank(self, view: ClusterView, job: int) -> float:
        """The rank of a waiting job; constant while it waits."""
        ...

    def ranks(self, view: ClusterView, jobs: Array) -> Array:
        """The ranks, now, of running jobs."""
        ...


def start_in_order(draft: Draft) -> None:
    """Starts waiting jobs in order; one that does not fit lets others pass."""
    for job in draft.waiting():
        draft.start(job)


def start_or_preempt(draft: Draft, ranking: Ranking) -> None:
    """Starts waiting jobs in order; one that does not fit preempts jobs that rank lower."""
    victims: Victims | None = None
    for job in draft.waiting():
        if draft.start(job):
            continue
        if victims is None:
            victims = Victims(draft, ranking)
        victims.make_room(job)


class Victims:
    """The running jobs, lowest rank first, of which no more are preempted than needed."""

    def __init__(self, draft: Draft, ranking: Ranking) -> None:
        self._draft = draft
        running = draft.view.placed_jobs()
        ranks = ranking.ranks(draft.view, running)
        self._worst = float(ranks.max(initial=-np.inf))
        self._unsorted: tuple[Array, Array] | None = (running, ranks)
        self._sorted: list[tuple[float, int, tuple[Grant, ...]]] = []
        self._preempted: set[int] = set()

    def make_room(self, job: int) -> bool:
        """Starts a job in place of lower-ranked ones, if preempting all of them is enough."""
        draft = self._draft
        rank = draft.view.waiting.key_of(job) + MARGIN
        if self._worst <= rank:
            return False
        if self._unsorted is not None:
            self._sort(rank)
        shape = draft.view.shape(job)
        chosen: list[int] = []
        if shape.whole and not shape.needs_host and self._sharing_is_plain() and self._fits_one_node(shape):
            chosen = self._on_one_node(shape, rank)
        if not chosen:
            chosen = self._below(rank)
            if not chosen or not self._would_fit(job, chosen):
                return False
        return self._replace(chosen, job)

    def _replace(self, victims: list[int], job: int) -> bool:
        """Suspends victims one by one until a job fits, and keeps those whose GPUs turn out not to be needed."""
        draft = self._draft
        mark = draft.mark()
        for number, victim in enumerate(victims, start=1):
            draft.suspend(victim)
            if draft.start(job):
                taken = victims[:number]
                # Best rank first.
                kept = [victim for victim in reversed(taken[:-1]) if draft.keep(victim)]
                self._preempted.update(taken)
                self._preempted.difference_update(kept)
                return True
        draft.rollback(mark)
        draft.closed.add(draft.view.shape(job).id)
        return False

    def _sort(self, rank: float) -> None:
        """Sorts the jobs that rank below the first job that needs room, and so below all after it.

        The lowest rank first; among equals the last submitted.
        """
        assert self._unsorted is not None
        running, ranks = self._unsorted
        self._unsorted = None
        below = np.flatnonzero(ranks > rank)
        order = below[np.lexsort((-running[below], -ranks[below]))]
        placed = self._draft.view.placed
        jobs: list[int] = running[order].tolist()
        self._sorted = [(rank, job, placed[job].grants) for rank, job in zip(ranks[order].tolist(), jobs, strict=True)]

    def _would_fit(self, job: int, victims: list[int]) -> bool:
        """Whether a job would fit without the victims."""
        draft = self._draft
        view, trial = draft.view, draft.capacity.fork()
        for victim in victims:
            trial.give(view.placed[victim], view.shape(victim))
        return draft.find_in(trial, job) is not None

    def _below(self, rank: float) -> list[int]:
        """All jobs that rank lower, the lowest first."""
        return [job for victim_rank, job, _ in self._sorted if victim_rank > rank and job not in self._preempted]

    def _on_one_node(self, shape: Shape, rank: float) -> list[int]:
        """The victims on the first node where, from the lowest rank up, enough GPUs become free."""
        capacity = self._draft.capacity
        types, type_of, idle = capacity.types_for(shape), capacity.nodes.type_of, capacity.idle
        allowed, up, preempted = capacity.allowed(shape), capacity.up, self._preempted
        room: dict[int, int] = {}
        on: dict[int, list[int]] = {}
        for victim_rank, job, grants in self._sorted:
            if victim_rank <= rank:
                break
            if job in preempted:
                continue
            for node, devices, _ in grants:
                count = room.get(node)
                count = (idle[node].bit_count() if count is None else count) + devices.bit_count()
                room[node] = count
                on.setdefault(node, []).append(job)
                if count >= shape.gpus and type_of[node] in types and up[node] and allowed >> node & 1:
                    return on[node]
        return []

    def _fits_one_node(self, shape: Shape) -> bool:
        by_idle = self._draft.capacity.by_idle
        return all(shape.gpus < len(by_idle[gpu_type]) for gpu_type in self._draft.capacity.types_for(shape))

    def _sharing_is_plain(self) -> bool:
        """Whether no device is shared, so that a job that is preempted leaves all of its devices idle."""
        capacity = self._draft.capacity
        return not capacity.open_sharing.any() and not capacity.layouts and not capacity.claims


def repack(draft: Draft, ranking: Ranking) -> None:
    """Places all jobs again in the order of rank, moving running ones where that makes room."""
    view = draft.view
    capacity = view.capacity.fork()
    rows = view.placed_jobs()
    ranks = ranking.ranks(view, rows)
    for job in view.placed:
        capacity.give(view.placed[job], view.shape(job))
    running = [(rank, job) for rank, job in zip(ranks.tolist(), rows.tolist(), strict=True)]
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
    """Reasons under a policy that preempts: the job waits because the running jobs rank higher."""

    def explain(job: int) -> Reason:
        reason = draft.explain(job)
        if reason.code is Why.NO_ROOM:
            return Reason(Why.OUTRANKED, reason.numbers)
        return reason

    return explain
