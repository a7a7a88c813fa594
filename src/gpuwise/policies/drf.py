"""Dominant resource fairness: the tenant with the smallest dominant share goes next (Ghodsi et al., NSDI'11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.shape import Shape, total_host
from gpuwise.core.tables import Array


@dataclass(frozen=True)
class DominantResourceFairness:
    """Tenants get equal shares of the resource each uses most; within a tenant, by submission."""

    name = "drf"
    wakes_on = CAPACITY_CHANGES

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts one job at a time for the tenant with the smallest dominant share."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        totals = _totals(view)
        held = self._held(view)
        lines = _lines(view)
        ahead = [(_dominant(held.get(tenant), totals), tenant) for tenant in lines]
        heapify(ahead)
        while ahead:
            _, tenant = ahead[0]
            job = next((job for job in lines[tenant] if draft.start(job)), None)
            if job is None:
                heappop(ahead)
                continue
            held[tenant] = held.get(tenant, np.zeros(3)) + _demand(view.shape(job))
            heapreplace(ahead, (_dominant(held[tenant], totals), tenant))
        return draft.seal()

    def _held(self, view: ClusterView) -> dict[int, Array]:
        held: dict[int, Array] = {}
        for job in view.placed:
            tenant = view.jobs.tenant.item(job)
            held[tenant] = held.get(tenant, np.zeros(3)) + _demand(view.shape(job))
        return held


def _lines(view: ClusterView) -> dict[int, Iterator[int]]:
    lines: dict[int, list[int]] = {}
    for job in view.waiting:
        lines.setdefault(view.jobs.tenant.item(job), []).append(job)
    return {tenant: iter(jobs) for tenant, jobs in lines.items()}


def _demand(shape: Shape) -> Array:
    return np.array([shape.gpus * shape.milli / 1000, *total_host(shape)])


def _totals(view: ClusterView) -> Array:
    """GPUs, CPUs and memory of the cluster; what is not modelled (infinite) never dominates."""
    nodes, count = view.nodes, len(view.nodes)
    return np.array([nodes.gpus[:count].sum(), nodes.cpus[:count].sum(), nodes.memory_bytes[:count].sum()])


def _dominant(held: Array | None, totals: Array) -> float:
    if held is None:
        return 0.0
    shares = np.divide(held, totals, out=np.zeros(3), where=(totals > 0) & np.isfinite(totals))
    return float(shares.max())
