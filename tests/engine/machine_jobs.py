"""Jobs of every kind for the state machine: gangs, elastic jobs, fractions of a GPU, and jobs of several roles."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB

ALL, ALONE = frozenset(Sharing), frozenset((Sharing.EXCLUSIVE,))
MODES = {
    "gang": [ALL, ALONE],
    "elastic": [ALL, ALONE],
    "fraction": [ALL, *(frozenset((mode, Sharing.MIG)) for mode in (Sharing.TIME_SLICE, Sharing.SHARED))],
    "roles": [ALL, ALONE],
}


@st.composite
def job_specs(draw: st.DrawFn, id: str, at_s: float) -> JobSpec:
    """Any job, with and without demands on memory, CPUs, GPU type and labels."""
    kind = draw(st.sampled_from(sorted(MODES)))
    return JobSpec(
        id=id,
        submit_s=at_s,
        duration_s=draw(st.sampled_from([1.0, 10.0, 100.0])),
        steps=draw(st.sampled_from([None, 640.0])),
        sharing=draw(st.sampled_from(MODES[kind])),
        gpu_util_frac=draw(st.sampled_from([math.nan, 0.6])),
        require=draw(st.sampled_from([(), (), (), (("zone", ("b",)),), (("zone", ("a", "b")),)])),
        prefer=draw(st.sampled_from([(), (), (("zone", ("b",)),)])),
        within=draw(st.sampled_from(["", "", "", "zone", "node"])),
        **draw(plain_needs(kind) if kind != "roles" else role_needs()),
    )


@st.composite
def plain_needs(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """What a job without roles asks for."""
    gpus = draw(st.integers(1, 4)) if kind != "fraction" else 1
    elastic = {"min_gpus": draw(st.integers(1, gpus)), "max_gpus": draw(st.integers(gpus, 6))}
    return {
        "gpus": gpus,
        "gpu_frac": draw(st.sampled_from([0.1, 0.143, 0.25, 0.5, 0.7])) if kind == "fraction" else 1.0,
        "gpu_types": draw(gpu_types),
        "gpu_memory_bytes": draw(gpu_memory),
        "cpus": draw(st.sampled_from([0.0, 0.0, 1.0, 3.0, 0.1])),
        "memory_bytes": draw(st.sampled_from([0.0, 0.0, 8 * GIB, 40 * GIB])),
        **(elastic if kind == "elastic" else {}),
    }


gpu_memory = st.sampled_from([0.0, 4 * GIB, 15 * GIB, 30 * GIB])
gpu_types = st.sampled_from([(), (), ("A100",), ("T4", "A100")])
host = {"cpus": st.sampled_from([0.0, 1.0, 2.5]), "memory_bytes": st.sampled_from([0.0, 8 * GIB])}
ROLES = [
    st.builds(Role, st.just("worker"), st.integers(1, 2), gpus=st.integers(1, 2), **host),
    st.builds(Role, st.just("worker"), st.just(2), st.just(1), st.integers(2, 4), gpus=st.integers(1, 2), **host),
    st.builds(Role, st.just("chief"), gpus=st.just(1), **host),
    st.builds(Role, st.just("ps"), st.integers(1, 3), **host),
    st.builds(Role, st.just("ps"), st.just(2), st.integers(1, 2), st.integers(2, 4), **host),
]


@st.composite
def role_needs(draw: st.DrawFn) -> dict[str, Any]:
    """What a job with one to three roles asks for; one that has a single GPU may want part of it."""
    drawn = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=3).flatmap(lambda each: st.tuples(*each)))
    roles = tuple({role.name: role for role in drawn}.values())
    low, high = (sum(role.count_range[end] * role.gpus for role in roles) for end in (0, 1))
    return {
        "roles": roles,
        "gpus": sum(role.count * role.gpus for role in roles),
        "min_gpus": low,
        "max_gpus": high,
        "gpu_frac": draw(st.sampled_from([1.0, 0.25, 0.5])) if (low, high) == (1, 1) else 1.0,
        "gpu_types": draw(gpu_types),
        "gpu_memory_bytes": draw(gpu_memory),
    }
