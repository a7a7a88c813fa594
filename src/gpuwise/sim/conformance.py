"""`check_policy`: the rules of every policy, checked on small clusters; for policies of other packages too."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Decision, Reason, Resume, Start
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError, ReadOnlyError
from gpuwise.core.job.life_cycle import ENDED
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import Placer, Policy, feasible
from gpuwise.core.rates import DeclaredRates
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.drive import StalledError, drive
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy
from gpuwise.sim.conformance_workloads import UnreliableExecutor, Workload, workloads
from gpuwise.sim.executor.virtual import VirtualExecutor


class NotConformingError(GpuwiseError):
    """A policy that breaks a rule, with the workload it broke it on."""


def check_policy(policy: str | Policy | Callable[[], Policy], seeds: int = 3) -> None:
    """Raises `NotConformingError` unless a policy keeps the rules.

    It has a name and says what wakes it; it never allocates what is not free, and a gang starts whole; the same view
    and seed give the same decision, and the view is left unchanged; every job left waiting has a reason; and every job
    of a finite workload ends, whatever happens to the nodes.
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
        for workload in workloads(seed):
            _run(_Audited(make()), workload, seed)


def _check_attributes(policy: Any) -> None:
    if not isinstance(getattr(policy, "name", None), str) or not policy.name:
        raise NotConformingError("a policy must have a name")
    if not isinstance(getattr(policy, "wakes_on", None), frozenset):
        raise NotConformingError(f"policy {policy.name!r}: wakes_on must be a frozenset of event types")
    if not callable(getattr(policy, "decide", None)):
        raise NotConformingError(f"policy {policy.name!r} has no decide(view, rng)")


class _Audited:
    """Asks the policy twice, compares, and checks its reasons for the jobs that it leaves waiting."""

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
            raise NotConformingError(f"policy {self.name!r} tried to change the state: {error}") from error
        return decision

    def _check_reason(self, decision: Decision, job: int) -> None:
        reason = decision.reasons(job)
        if not isinstance(reason, Reason):
            raise NotConformingError(f"policy {self.name!r} gives no reason for job {job}, which it leaves waiting")
        str(reason)


def _run(policy: _Audited, workload: Workload, seed: int) -> None:
    cluster, jobs, faults, events, unreliable = workload
    placer = with_roles(getattr(policy, "placer", best_fit))
    engine = Engine(cluster, policy, placer=placer, seed=seed)
    engine.state.jobs.declare(_feasible_jobs(jobs, cluster, policy, placer))
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
    """Nothing more will happen, so a job that has not ended never will."""
    state = engine.state
    left = [job for job in range(len(state.jobs)) if state.status(job) not in ENDED]
    if left:
        job, placement = left[0], state.placed.get(left[0])
        where = "" if placement is None else f" on {', '.join(state.nodes.names[node] for node in placement.nodes)}"
        raise StalledError(
            f"policy {engine.policy.name!r} leaves {len(left)} jobs that never end; the first, "
            f"{state.jobs.ids[job]!r}, is {state.status(job).name.lower()}{where} without making progress"
        )


def _feasible_jobs(jobs: list[JobSpec], cluster: ClusterSpec, policy: _Audited, placer: Placer) -> list[JobSpec]:
    """The jobs that are feasible under the policy: all, unless it partitions every GPU."""
    table, empty = JobTable(), Capacity(node_table(cluster))
    table.declare(jobs)
    return [job for row, job in enumerate(jobs) if feasible(policy, empty, table.shape_of(row), placer)]
