"""`check_policy`: what every policy must hold to, checked on small clusters; for policies of other packages too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.commands import Decision, Reason, Resume, Start
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError, ReadOnlyError
from gpuwise.core.events import DevicesClaimed, Event, NodeAdded, NodeChanged, NodeRemoved
from gpuwise.core.job.life_cycle import ENDED
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import Placer, Policy, feasible
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.units import GIB
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.drive import StalledError, drive
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy
from gpuwise.sim.faults import NodeFault
from gpuwise.sim.unreliable import UnreliableExecutor
from gpuwise.sim.virtual import VirtualExecutor


class NotConformingError(GpuwiseError):
    """A policy that breaks a rule, with the workload it broke it on."""


def check_policy(policy: str | Policy | Callable[[], Policy], seeds: int = 3) -> None:
    """Raises `NotConformingError` unless a policy holds to the rules.

    It has a name and says what wakes it; it never gives what is not free, and a gang starts whole; the same view and
    seed give the same decision, and the view is left as it was; every job left waiting has a reason; and every job of a
    finite workload ends, whatever happens to the nodes on the way.
    """
    make: Callable[[], Any]
    if isinstance(policy, str):
        make = lambda: make_policy(policy)  # noqa: E731
    elif isinstance(policy, type) or not hasattr(policy, "decide"):
        make = policy
    else:
        make = lambda: copy.deepcopy(policy)  # noqa: E731
    _check_attributes(make())
    for seed in range(seeds):
        for workload in _workloads(seed):
            _run(_Audited(make()), workload, seed)


def _check_attributes(policy: Any) -> None:
    if not isinstance(getattr(policy, "name", None), str) or not policy.name:
        raise NotConformingError("a policy must have a name")
    if not isinstance(getattr(policy, "wakes_on", None), frozenset):
        raise NotConformingError(f"policy {policy.name!r}: wakes_on must be a frozenset of event types")
    if not callable(getattr(policy, "decide", None)):
        raise NotConformingError(f"policy {policy.name!r} has no decide(view, rng)")


class _Audited:
    """Asks the policy twice, compares, and looks at what it says of those it leaves waiting."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.name = policy.name
        self.wakes_on = policy.wakes_on
        for name in ("rank", "placer", "feasible", "columns"):
            if hasattr(policy, name):
                setattr(self, name, getattr(policy, name))

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        twin = copy.deepcopy(rng)
        decision, again = self._ask(view, rng), self._ask(view, twin)
        if (decision.commands, decision.wake_at, decision.notes) != (again.commands, again.wake_at, again.notes):
            raise NotConformingError(f"policy {self.name!r}: the same view and seed gave two different decisions")
        if decision.wake_at is not None and not decision.wake_at > view.now_s:
            raise NotConformingError(
                f"policy {self.name!r} asks to be woken at {decision.wake_at}, which is not later than now"
            )
        started = {command.job for command in decision.commands if isinstance(command, (Start, Resume))}
        for job in view.waiting:
            if job not in started:
                self._check_reason(decision, job)
        return decision

    def _ask(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        try:
            decision: Decision = self._policy.decide(view, rng)
        except (ReadOnlyError, ValueError) as error:  # an array refuses with numpy's own error
            if isinstance(error, ValueError) and "read-only" not in str(error):
                raise
            raise NotConformingError(f"policy {self.name!r} tried to change the state it was shown: {error}") from error
        return decision

    def _check_reason(self, decision: Decision, job: int) -> None:
        reason = decision.reasons(job)
        if not isinstance(reason, Reason):
            raise NotConformingError(f"policy {self.name!r} gives no reason for job {job}, which it leaves waiting")
        str(reason)


class _Workload(NamedTuple):
    cluster: ClusterSpec
    jobs: list[JobSpec]
    faults: Sequence[NodeFault] = ()
    events: Sequence[Event] = ()
    """What else happens to nodes."""
    unreliable: bool = False
    """Whether starts are refused and things are reported twice."""


def _run(policy: _Audited, workload: _Workload, seed: int) -> None:
    cluster, jobs, faults, events, unreliable = workload
    placer = with_roles(getattr(policy, "placer", best_fit))
    engine = Engine(cluster, policy, placer=placer, seed=seed)
    engine.state.jobs.declare(_held(jobs, cluster, policy, placer))
    executor = VirtualExecutor(
        engine.state.jobs, engine.state.nodes, DeclaredRates(engine.state.jobs, engine.state.nodes), faults=faults
    )
    executor.expect(events)
    try:
        drive(engine, UnreliableExecutor(executor, engine.state.nodes) if unreliable else executor)
        _check_all_ended(engine)
    except (DraftError, InvalidDecisionError, StalledError) as error:
        raise NotConformingError(f"on {cluster.describe()} with {len(jobs)} jobs (seed {seed}): {error}") from error


def _check_all_ended(engine: Engine) -> None:
    """Nothing will ever happen again, so a job that has not ended never will."""
    state = engine.state
    left = [job for job in range(len(state.jobs)) if state.status(job) not in ENDED]
    if left:
        job, placement = left[0], state.placed.get(left[0])
        where = "" if placement is None else f" on {', '.join(state.nodes.names[node] for node in placement.nodes)}"
        raise StalledError(
            f"policy {engine.policy.name!r} leaves {len(left)} jobs that never end; the first, "
            f"{state.jobs.ids[job]!r}, is {state.status(job).name.lower()}{where} without making progress"
        )


def _held(jobs: list[JobSpec], cluster: ClusterSpec, policy: _Audited, placer: Placer) -> list[JobSpec]:
    """The jobs that the policy says it could ever run; all of them, but for one that cuts every GPU."""
    table, empty = JobTable(), Capacity(node_table(cluster))
    table.declare(jobs)
    return [job for row, job in enumerate(jobs) if feasible(policy, empty, table.shape_of(row), placer)]


def _workloads(seed: int) -> Iterator[_Workload]:
    """Small clusters with more work than they hold: gangs, fractions, slices, CPUs, types, deadlines, a lost node.

    In the last two, jobs are elastic, ask for labels or have several roles; nodes are drained, lost, join and are
    removed, others use GPUs, CPUs and memory, and starts are refused.
    """
    rng = np.random.default_rng(seed)
    plain = ClusterSpec.parse("3x4:V100")
    yield _Workload(plain, _jobs(rng, 20))
    yield _Workload(plain, _jobs(rng, 15, costs=True), [NodeFault(300.0, 1, 400.0)])
    mixed = ClusterSpec(
        tuple(
            NodeSpec(name=f"n{i}", gpu_type=gpu, gpus=4, cpus=16, memory_bytes=64 * GIB, gpu_memory_bytes=16 * GIB)
            for i, gpu in enumerate(("V100", "V100", "T4"))
        )
    )
    yield _Workload(mixed, _jobs(rng, 25, rich=True, costs=True), [NodeFault(500.0, 2, 300.0)])
    with_mig = ClusterSpec(
        tuple(NodeSpec(name=f"n{i}", gpu_type="A100", gpus=2, cpus=16, gpu_memory_bytes=40 * GIB) for i in range(2))
    )
    sliced = [_sliced(rng, job) for job in _jobs(rng, 25, costs=True)]
    yield _Workload(with_mig, sliced, [NodeFault(400.0, 0, 300.0)])
    yield _restless(rng)
    yield _with_roles(rng)


def _restless(rng: np.random.Generator) -> _Workload:
    """A cluster that changes while jobs run; what is taken away comes back, so that all of them can end."""
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
    return _Workload(ClusterSpec(tuple(nodes)), jobs, events=events, unreliable=True)


def _with_roles(rng: np.random.Generator) -> _Workload:
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
    return _Workload(ClusterSpec(tuple(nodes)), jobs, faults, events, unreliable=True)


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
