"""Placements that say that they only read are shown the cluster's own capacity: nothing of it may change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders import capacity_of, cluster, job, node
from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.job.needs import Role
from gpuwise.core.job.table import JobTable
from gpuwise.policies.placing.placers import PLACERS, make_placer

WORKER, SERVER = Role("worker", 2, gpus=1, cpus=2.0), Role("ps", 2, cpus=4.0)
JOBS = [
    job("plain", gpus=3, cpus=2.0),
    job("half", gpu_frac=0.5),
    job("gang", gpus=2, roles=(WORKER, SERVER)),
    job("gang on a node", gpus=2, roles=(WORKER, SERVER), within="node"),
    job("gang in a rack", gpus=2, roles=(WORKER, SERVER), within="rack"),
]


def contents(capacity: Capacity) -> dict[str, Any]:
    """Everything a capacity keeps, but for answers that it keeps for whoever asks first."""
    caches = ("_types_of", "_allowed", "_labelled", "_borrowed", "nodes")
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else repr(value)
        for name, value in vars(capacity).items()
        if name not in caches
    }


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_a_placement_changes_nothing_of_what_it_is_shown(name: str) -> None:
    jobs = JobTable()
    rows = jobs.declare(JOBS)
    racks = [node(f"n{i}", 4, cpus=16.0, labels=(("rack", f"r{i % 2}"),)) for i in range(3)]
    capacity = capacity_of(cluster(*racks))
    before = contents(capacity)
    placer = make_placer(name, jobs)
    found = [placer(capacity, jobs.shape_of(row), jobs.shape_of(row).gpus) for row in rows]
    assert all(each is not None for each in found)
    assert contents(capacity) == before
