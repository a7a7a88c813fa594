"""The workloads that `check_policy` runs: small clusters, mixed jobs, nodes that change, and unreliable execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpuwise.core.assignments import Assignment, Desired, Intent
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.events import DevicesClaimed, Event, NodeAdded, NodeChanged, NodeRemoved
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.observations import AttemptObserved, Cause, Details, Observations, Phase
from gpuwise.core.units import GIB
from gpuwise.sim.executor.failures import NodeFault
from gpuwise.sim.executor.virtual import VirtualExecutor

REFUSED_EVERY = 4
"""Among the first starts of jobs."""
REPEATED_EVERY = 5
"""Among the observations."""


class Workload(NamedTuple):
    """A cluster, jobs, and what happens to the nodes."""

    cluster: ClusterSpec
    jobs: list[JobSpec]
    faults: Sequence[NodeFault] = ()
    events: Sequence[Event] = ()
    """Nodes that change, join and are removed, and foreign processes on them."""
    unreliable: bool = False
    """Whether some starts are refused and some observations repeated."""


def workloads(seed: int) -> Iterator[Workload]:
    """Small clusters with more work than GPUs: gangs, fractions, slices, CPUs, types, deadlines, a lost node.

    In the last two, jobs are elastic, ask for labels or have several roles; nodes are drained, lost, join and are
    removed, foreign processes use GPUs, CPUs and memory, and starts are refused.
    """
    rng = np.random.default_rng(seed)
    plain = ClusterSpec.parse("3x4:V100")
    yield Workload(plain, _jobs(rng, 20))
    yield Workload(plain, _jobs(rng, 15, costs=True), [NodeFault(300.0, 1, 400.0)])
    mixed = ClusterSpec(
        tuple(
            NodeSpec(name=f"n{i}", gpu_type=gpu, gpus=4, cpus=16, memory_bytes=64 * GIB, gpu_memory_bytes=16 * GIB)
            for i, gpu in enumerate(("V100", "V100", "T4"))
        )
    )
    yield Workload(mixed, _jobs(rng, 25, rich=True, costs=True), [NodeFault(500.0, 2, 300.0)])
    with_mig = ClusterSpec(
        tuple(NodeSpec(name=f"n{i}", gpu_type="A100", gpus=2, cpus=16, gpu_memory_bytes=40 * GIB) for i in range(2))
    )
    sliced = [_sliced(rng, job) for job in _jobs(rng, 25, costs=True)]
    yield Workload(with_mig, sliced, [NodeFault(400.0, 0, 300.0)])
    yield _restless(rng)
    yield _with_roles(rng)


def _restless(rng: np.random.Generator) -> Workload:
    """A cluster that changes while jobs run; all of it is restored, so that all jobs can end."""
    nodes = [
        NodeSpec(
            name=f"n{i}", gpu_type="V100", gpus=4, cpus=16, gpu_memory_bytes=16.0 * GIB, labels=(("zone", "ab"[i % 2]),)
        )
        for i in range(4)
    ]
    memory, exclusive = ((nodes[0].device_id(0), 10.0 * GIB, False),), ((nodes[1].device_id(2), 0.0, True),)
    events: list[Event] = [
        DevicesClaimed(50.0, "n0", memory, cpus=4.0),
        DevicesClaimed(80.0, "n1", exclusive),
        NodeChanged(150.0, replace(nodes[2], schedulable=False)),
        NodeAdded(200.0, replace(nodes[0], name="n4", gpu_memory_bytes=32.0 * GIB)),
        NodeChanged(600.0, nodes[2]),
        DevicesClaimed(700.0, "n0"),
        DevicesClaimed(700.0, "n1"),
        NodeRemoved(800.0, "n4"),
    ]
    jobs = [_elastic(rng, _labelled(rng, job)) for job in _jobs(rng, 30)]
    return Workload(ClusterSpec(tuple(nodes)), jobs, events=events, unreliable=True)


def _with_roles(rng: np.random.Generator) -> Workload:
    """Jobs of several roles beside plain ones; tasks without GPUs also run on a node that has none."""
    host: dict[str, Any] = {"cpus": 16.0, "memory_bytes": 64.0 * GIB, "gpu_memory_bytes": 16.0 * GIB}
    nodes = [
        NodeSpec(name="n0", gpu_type="V100", gpus=4, labels=(("zone", "a"),), **host),
        NodeSpec(name="n1", gpu_type="V100", gpus=4, labels=(("zone", "b"),), **host),
        NodeSpec(name="n2", gpu_type="A100", gpus=2, labels=(("zone", "b"),), **host),
        NodeSpec(name="n3", gpu_type="", gpus=0, labels=(("zone", "b"),), **host),
    ]
    events: list[Event] = [
        DevicesClaimed(50.0, "n0", cpus=10.0, memory_bytes=50.0 * GIB),
        NodeChanged(100.0, replace(nodes[3], schedulable=False)),
        NodeChanged(250.0, nodes[3]),
        DevicesClaimed(400.0, "n0"),
    ]
    faults = [NodeFault(150.0, 1, 200.0), NodeFault(300.0, 3, 100.0)]
    jobs = [_gang(rng, job) for job in _jobs(rng, 20, rich=True, costs=True)]
    return Workload(ClusterSpec(tuple(nodes)), jobs, faults, events, unreliable=True)


def _gang(rng: np.random.Generator, job: JobSpec) -> JobSpec:
    """The job, three in four of them with roles, whose tasks have one GPU, several or none; some are elastic."""
    cpus, memory = float(rng.integers(0, 4)), float(rng.integers(0, 8)) * GIB
    servers = Role("ps", int(rng.integers(1, 4)), cpus=1.0 + cpus, memory_bytes=memory)
    workers = Role("worker", min(job.gpus, 4), gpus=1, cpus=cpus, memory_bytes=memory)
    roles: tuple[Role, ...] = (
        (workers, servers),
        (replace(workers, min_count=1, max_count=6), replace(servers, min_count=1, max_count=4)),
        (Role("chief", gpus=1, cpus=cpus), Role("worker", int(rng.integers(1, 3)), gpus=2, cpus=cpus), servers),
        (servers,),
    )[rng.choice(4, p=[0.4, 0.3, 0.2, 0.1])]
    if rng.random() < 0.25:
        return job
    low, high = (sum(role.count_range[end] * role.gpus for role in roles) for end in (0, 1))
    return replace(
        job, roles=roles, gpus=sum(role.count * role.gpus for role in roles), min_gpus=low, max_gpus=high,
        cpus=0.0, memory_bytes=0.0, gpu_frac=job.gpu_frac if (low, high) == (1, 1) else 1.0,
        gpu_types=job.gpu_types, within="zone" if rng.random() < 0.2 else "",
    )  # fmt: skip


def _elastic(rng: np.random.Generator, job: JobSpec) -> JobSpec:
    """The job, one in four of them with a range of GPUs."""
    return replace(job, min_gpus=1, max_gpus=job.gpus + 2) if rng.random() < 0.25 else job


def _labelled(rng: np.random.Generator, job: JobSpec) -> JobSpec:
    """The job with memory, a zone that it must or had better be in, and within one zone."""
    zone = (("zone", ("ab"[int(rng.integers(2))],)),)
    return replace(
        job,
        gpus=min(job.gpus, 4),
        gpu_memory_bytes=float(rng.integers(1, 14)) * GIB,
        require=zone if rng.random() < 0.3 else (),
        prefer=zone if rng.random() < 0.3 else (),
        within="zone" if rng.random() < 0.3 else "",
        gpu_util_frac=float(rng.uniform(0.1, 1.0)),
    )


def _sliced(rng: np.random.Generator, job: JobSpec) -> JobSpec:
    """The job with memory, utilization and speeds on slices; on the smallest, some fit but make no progress."""
    least = float(rng.uniform(0.0, 0.6))
    speeds = {f"A100/{size}g": max(0.0, round(1 - (1 - least) * (7 - size) / 6, 3)) for size in (1, 2, 3, 4)}
    memory = float(rng.integers(1, 24)) * GIB
    if rng.random() < 0.2:
        speeds["A100/1g"], memory = 0.0, 4.0 * GIB
    alone_only = rng.random() < 0.2
    return replace(
        job, gpus=min(job.gpus, 4), gpu_memory_bytes=memory, speeds=tuple(speeds.items()),
        gpu_util_frac=float(rng.uniform(0.1, 1.0)),
        sharing=frozenset((Sharing.EXCLUSIVE,)) if alone_only else job.sharing,
    )  # fmt: skip


def _jobs(rng: np.random.Generator, count: int, rich: bool = False, costs: bool = False) -> list[JobSpec]:
    jobs = []
    submit_s = 0.0
    for number in range(count):
        submit_s += float(rng.exponential(20.0))
        duration_s = round(float(rng.lognormal(4.5, 1.0)) + 1.0, 3)
        gpus = int(rng.choice([1, 2, 4, 8], p=[0.5, 0.25, 0.15, 0.1]))
        extra: dict[str, Any] = {}
        if rich:
            gpus = min(gpus, 4)
            extra = {"cpus": float(gpus * rng.integers(0, 4)), "memory_bytes": float(gpus * rng.integers(0, 8) * GIB)}
            if gpus == 1 and rng.random() < 0.5:
                extra["gpu_frac"] = float(rng.choice([0.25, 0.5, 0.7]))
            elif rng.random() < 0.3:
                extra["gpu_types"] = ("V100",)
        if costs:
            extra.update(suspend_s=2.0, resume_s=5.0, migrate_s=7.0)
        jobs.append(
            JobSpec(
                id=f"j{number}", submit_s=round(submit_s, 3), duration_s=duration_s, gpus=gpus,
                priority=int(rng.integers(0, 3)), tenant=f"t{rng.integers(0, 3)}",
                deadline_s=submit_s + duration_s * 3 if rng.random() < 0.5 else float("inf"), **extra,
            )
        )  # fmt: skip
    return jobs


class UnreliableExecutor:
    """A virtual executor that refuses the first start of every fourth job and repeats every fifth observation."""

    def __init__(self, executor: VirtualExecutor, nodes: NodeTable) -> None:
        self._executor = executor
        self._nodes = nodes
        self._now_s = 0.0
        self._refusals: list[AttemptObserved] = []
        self._again: list[AttemptObserved] = []
        self._starts = self._observations = 0

    def observe(self, until_s: float | None) -> Observations | None:
        """What happens next: refusals at once, and what is repeated together with what follows it."""
        if self._refusals:
            refusals, self._refusals = self._refusals, []
            return self._now_s, refusals
        seen = self._executor.observe(until_s)
        if seen is None:
            return None
        self._now_s, happened = seen
        again, self._again = self._again, [each for each in happened if self._is_repeated(each)]  # type: ignore[misc]
        return self._now_s, [*again, *happened]

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        """Refuses some starts, and passes on the rest."""
        taken = [each for each in desired if not (isinstance(each, Assignment) and self._refuses(each))]
        if taken:
            self._executor.follow(taken, complete)

    def _is_repeated(self, seen: object) -> bool:
        if not isinstance(seen, AttemptObserved):
            return False
        self._observations += 1
        return self._observations % REPEATED_EVERY == 0

    def _names(self, wanted: Assignment) -> tuple[str, ...]:
        return () if wanted.placement is None else tuple(sorted({self._nodes.names[n] for n in wanted.placement.nodes}))

    def _refuses(self, wanted: Assignment) -> bool:
        """Only a first start is refused, before anything of the job runs that would have to be stopped."""
        if wanted.intent is not Intent.RUN or wanted.attempt > 1:
            return False
        self._starts += 1
        if self._starts % REFUSED_EVERY:
            return False
        details = Details(cause=Cause.BUSY, text="in use", avoid=self._names(wanted))
        self._refusals.append(AttemptObserved(self._now_s, wanted.job, 1, Phase.REFUSED, details=details))
        return True
