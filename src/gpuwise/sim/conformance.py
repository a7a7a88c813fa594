"""`check_policy`: what every policy must hold to, checked on small clusters; for policies of other packages too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gpuwise.core.capacity import Capacity
from gpuwise.core.commands import Decision, Reason, Resume, Start
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.jobs import JobTable
from gpuwise.core.nodes import node_table
from gpuwise.core.protocols import Placer, Policy, holds
from gpuwise.core.spec import ClusterSpec, JobSpec, NodeSpec, Sharing
from gpuwise.core.state import DeclaredRates
from gpuwise.core.units import GIB
from gpuwise.core.view import ClusterView
from gpuwise.engine.drive import StalledError, drive
from gpuwise.engine.engine import Engine, InvalidDecisionError
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy
from gpuwise.sim.faults import NodeFault
from gpuwise.sim.virtual import VirtualExecutor


class NotConformingError(GpuwiseError):
    """A policy that breaks a rule, with the workload it broke it on."""


def check_policy(policy: str | Policy | Callable[[], Policy], seeds: int = 3) -> None:
    """Raises `NotConformingError` unless a policy holds to the rules.

    It has a name and says what wakes it; it never gives what is not free, and a gang starts whole; the same view and
    seed give the same decision, and the view is left as it was; every job left waiting has a reason; and every job of a
    finite workload ends, nodes lost on the way or not.
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
        for cluster, jobs, faults in _workloads(seed):
            _run(_Audited(make()), cluster, jobs, faults, seed)


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
        for name in ("rank", "placer", "holds"):
            if hasattr(policy, name):
                setattr(self, name, getattr(policy, name))

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        before, twin = _fingerprint(view), copy.deepcopy(rng)
        decision: Decision = self._policy.decide(view, rng)
        again = self._policy.decide(view, twin)
        if (decision.commands, decision.wake_at) != (again.commands, again.wake_at):
            raise NotConformingError(f"policy {self.name!r}: the same view and seed gave two different decisions")
        if decision.wake_at is not None and not decision.wake_at > view.now_s:
            raise NotConformingError(
                f"policy {self.name!r} asks to be woken at {decision.wake_at}, which is not later than now"
            )
        if _fingerprint(view) != before:
            raise NotConformingError(f"policy {self.name!r} changed the state it was shown")
        started = {command.job for command in decision.commands if isinstance(command, (Start, Resume))}
        for job in view.waiting:
            if job not in started:
                self._check_reason(decision, job)
        return decision

    def _check_reason(self, decision: Decision, job: int) -> None:
        reason = decision.reasons(job)
        if not isinstance(reason, Reason):
            raise NotConformingError(f"policy {self.name!r} gives no reason for job {job}, which it leaves waiting")
        str(reason)


def _run(policy: _Audited, cluster: ClusterSpec, jobs: list[JobSpec], faults: list[NodeFault], seed: int) -> None:
    placer = getattr(policy, "placer", best_fit)
    engine = Engine(cluster, policy, placer=placer, seed=seed)
    engine.state.jobs.declare(_held(jobs, cluster, policy, placer))
    executor = VirtualExecutor(engine.state.jobs, DeclaredRates(engine.state.jobs, engine.state.nodes), faults=faults)
    try:
        drive(engine, executor)
    except (InvalidDecisionError, StalledError) as error:
        raise NotConformingError(f"on {cluster.describe()} with {len(jobs)} jobs (seed {seed}): {error}") from error


def _held(jobs: list[JobSpec], cluster: ClusterSpec, policy: _Audited, placer: Placer) -> list[JobSpec]:
    """The jobs that the policy says it could ever run; all of them, but for one that cuts every GPU."""
    table, empty = JobTable(), Capacity(node_table(cluster))
    table.declare(jobs)
    return [job for row, job in enumerate(jobs) if holds(policy, empty, table.shape_of(row), placer)]


def _fingerprint(view: ClusterView) -> tuple[Any, ...]:
    capacity = view.capacity
    return (
        tuple(view.waiting), tuple(view.placed.items()), tuple(capacity.idle), capacity.free_cpus.tobytes(),
        capacity.open_milli.tobytes(), tuple(capacity.layouts.items()),
        *(column.tobytes() for column in view.jobs.columns().values()),
    )  # fmt: skip


def _workloads(seed: int) -> Iterator[tuple[ClusterSpec, list[JobSpec], list[NodeFault]]]:
    """Small clusters with more work than they hold: gangs, fractions, slices, CPUs, types, deadlines, a lost node."""
    rng = np.random.default_rng(seed)
    plain = ClusterSpec.parse("3x4:V100")
    yield plain, _jobs(rng, 30), []
    yield plain, _jobs(rng, 20, costs=True), [NodeFault(300.0, 1, 400.0)]
    mixed = ClusterSpec(
        tuple(
            NodeSpec(name=f"n{i}", gpu_type=gpu, gpus=4, cpus=16, memory_bytes=64 * GIB, gpu_memory_bytes=16 * GIB)
            for i, gpu in enumerate(("V100", "V100", "T4"))
        )
    )
    yield mixed, _jobs(rng, 30, rich=True, costs=True), [NodeFault(500.0, 2, 300.0)]
    with_mig = ClusterSpec(
        tuple(NodeSpec(name=f"n{i}", gpu_type="A100", gpus=2, cpus=16, gpu_memory_bytes=40 * GIB) for i in range(2))
    )
    yield with_mig, [_sliced(rng, job) for job in _jobs(rng, 25, costs=True)], [NodeFault(400.0, 0, 300.0)]


def _sliced(rng: np.random.Generator, job: JobSpec) -> JobSpec:
    """The job with memory, utilization and speeds on slices, on some of which it makes no progress."""
    least = float(rng.uniform(0.0, 0.6))
    speeds = {f"A100/{size}g": max(0.0, round(1 - (1 - least) * (7 - size) / 6, 3)) for size in (1, 2, 3, 4)}
    if rng.random() < 0.2:
        speeds["A100/1g"] = 0.0
    alone_only = rng.random() < 0.2
    return replace(
        job, gpus=min(job.gpus, 4), gpu_memory_bytes=float(rng.integers(1, 24)) * GIB, speeds=tuple(speeds.items()),
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
