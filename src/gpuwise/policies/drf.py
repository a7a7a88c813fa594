"""Dominant resource fairness: the tenant with the smallest dominant share ranks highest (Ghodsi et al., NSDI'11)."""

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
        used = _used(view)
        queues = _queues(view)
        tenants = [(_dominant(used.get(tenant), totals), tenant) for tenant in queues]
        heapify(tenants)
        while tenants:
            _, tenant = tenants[0]
            job = next((job for job in queues[tenant] if draft.start(job)), None)
            if job is None:
                heappop(tenants)
                continue
            used[tenant] = used.get(tenant, np.zeros(3)) + _demand(view.shape(job))
            heapreplace(tenants, (_dominant(used[tenant], totals), tenant))
        return draft.seal()


def _used(view: ClusterView) -> dict[int, Array]:
    used: dict[int, Array] = {}
    for job in view.placed:
        tenant = view.jobs.tenant.item(job)
        used[tenant] = used.get(tenant, np.zeros(3)) + _demand(view.shape(job))
    return used


def _queues(view: ClusterView) -> dict[int, Iterator[int]]:
    queues: dict[int, list[int]] = {}
    for job in view.waiting:
        queues.setdefault(view.jobs.tenant.item(job), []).append(job)
    return {tenant: iter(jobs) for tenant, jobs in queues.items()}


def _demand(shape: Shape) -> Array:
    return np.array([shape.gpus * shape.milli / 1000, *total_host(shape)])


def _totals(view: ClusterView) -> Array:
    """GPUs, CPUs and memory of the cluster; what is not modelled (infinite) never dominates."""
    nodes, count = view.nodes, len(view.nodes)
    return np.array([nodes.gpus[:count].sum(), nodes.cpus[:count].sum(), nodes.memory_bytes[:count].sum()])


def _dominant(used: Array | None, totals: Array) -> float:
    if used is None:
        return 0.0
    shares = np.divide(used, totals, out=np.zeros(3), where=(totals > 0) & np.isfinite(totals))
    return float(shares.max())
