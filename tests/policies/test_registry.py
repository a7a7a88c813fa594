"""Policies by name: parameters, mistakes, and what every policy owes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from test_golden_runs import SCATTERED

from builders import capacity_of, cluster, engine_with, job, node, shapes_of
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Why
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.events import JobFinished
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.protocols import feasible
from gpuwise.engine.engine import Engine
from gpuwise.policies.las import LeastAttainedService
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy, policies
from gpuwise.policies.shortest import ShortestRemainingTime
from gpuwise.sim.executor.virtual import VirtualExecutor


@pytest.mark.parametrize("name", policies())
def test_every_policy_is_made_by_its_name(name: str):
    assert make_policy(name).name == name


def test_an_unknown_policy_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown policy 'srft'; did you mean srtf") as unknown:
        make_policy("srft")
    assert unknown.value.nearest[0] == "srtf"


def test_parameters_are_read_by_their_kind():
    assert make_policy("las?thresholds_gpu_s=60,3600") == LeastAttainedService((60.0, 3600.0))
    assert make_policy("las?thresholds_gpu_s=60") == LeastAttainedService((60.0,))
    assert make_policy("srtf?repack=yes") == ShortestRemainingTime(repack=True)
    assert make_policy("srtf?repack=false") == ShortestRemainingTime(repack=False)
    assert make_policy("tetris?shortness=2").shortness == 2.0  # type: ignore[attr-defined]
    assert make_policy("fifo-backfill?depth=7").depth == 7  # type: ignore[attr-defined]


BAD = {
    "las?thresholds_gpu_s=soon": "policy 'las': thresholds_gpu_s is 'soon'; it must be numbers",
    "srtf?repack=perhaps": "policy 'srtf': repack is 'perhaps'; it must be yes or no",
    "fifo-backfill?depth=2.5": "policy 'fifo-backfill': depth is '2.5'; it must be a whole number",
    "fifo-backfill?deep=2": "unknown parameter of policy 'fifo-backfill' 'deep'; did you mean depth",
    "fifo?depth=2": "policy 'fifo' has no parameters; 'depth' was given",
    "srtf?repack=": "policy 'srtf': repack is ''; it must be yes or no",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_parameter_is_named_with_its_value(text: str):
    with pytest.raises(GpuwiseError, match=re.escape(BAD[text])):
        make_policy(text)


# -- why a job waits ---------------------------------------------------------------------------------------------------

MIXED_CLUSTER = cluster(
    node("a", 4, "V100", cpus=16, gpu_memory_bytes=16e9), node("b", 2, "A100", gpu_memory_bytes=40e9)
)
ASKED = [
    {"gpus": 4}, {"gpus": 2}, {"gpu_types": ("A100",)}, {"gpus": 2, "gpu_memory_bytes": 2e10}, {"cpus": 12},
    {"gpu_frac": 0.5}, {"gpu_frac": 0.75}, {"gpus": 3, "cpus": 15}, {"gpus": 4}, {}, {"gpus": 2}, {"cpus": 16},
]  # fmt: skip
COSTS = {"suspend_s": 1.0, "resume_s": 2.0, "migrate_s": 1.0}
MIXED_JOBS = [
    job(
        f"j{i}",
        5.0 + 7 * i % 13,
        at=float(i // 2),
        priority=i % 3,
        deadline_s=50.0 + i,
        tenant="AB"[i % 2],
        **COSTS,
        **more,
    )
    for i, more in enumerate(ASKED)
]


def play(policy: str, jobs: list[JobSpec], spec: ClusterSpec) -> Iterator[Engine]:
    """An engine after each of its steps, to the end."""
    engine = Engine(spec, make_policy(policy), placer=best_fit)
    engine.state.jobs.declare(jobs)
    executor = VirtualExecutor(engine.state.jobs, engine.state.nodes, engine.state.beliefs)
    while (seen := executor.observe(engine.wake_at)) is not None:
        executor.follow(engine.step(*seen))
        yield engine


@pytest.mark.parametrize("policy", [*policies(), "srsf?repack=true", "edf?preempt=no"])
def test_every_waiting_job_has_a_reason_with_numbers_in_it(policy: str):
    codes = set()
    empty, made = capacity_of(MIXED_CLUSTER), make_policy(policy)
    each = zip(MIXED_JOBS, shapes_of(*MIXED_JOBS), strict=True)
    jobs = [job for job, shape in each if feasible(made, empty, shape, best_fit)]  # one policy cuts every GPU
    for engine in play(policy, jobs, MIXED_CLUSTER):
        for row in range(len(jobs)):
            reason, status = engine.reason(row), engine.state.status(row)
            if status in (Status.PENDING, Status.SUSPENDED, Status.SUSPENDING):
                assert reason is not None
                codes.add(reason.code)
                assert str(reason)
                assert "{" not in str(reason)
                if reason.code is not Why.STOPPING:
                    assert re.search(r"\d", str(reason)), str(reason)
            else:
                assert reason is None
    assert codes - {Why.STOPPING}, "somebody must have waited"
    assert Why.NOT_CHOSEN not in codes
    assert (engine.state.jobs.status[: len(jobs)] == Status.SUCCEEDED).all()


def reason_of(policy: str, jobs: list[JobSpec], spec: ClusterSpec, row: int) -> str:
    """Why a job waits after the first decision."""
    return str(next(play(policy, jobs, spec)).reason(row))


def test_reasons_read_as_sentences():
    two = cluster("2x2:V100")
    assert reason_of("fifo", [job("a", gpus=2), job("b", gpus=1), job("c", gpus=2)], two, 2) == (
        "needs 2 GPUs; 1 of 4 such GPUs are idle, at most 1 on one node"
    )
    assert reason_of("fifo", [job("a", gpus=4), job("b", gpus=3), job("c")], two, 2) == (
        "waits behind job b, which is first in the queue and needs 3 GPUs"
    )
    assert reason_of("fifo-backfill", [job("a", 10, 3), job("b", 5, 4), job("c", 50)], cluster("1x4:V100"), 2) == (
        "would delay job b, which has a reservation at 10 s"
    )
    assert reason_of("srtf", [job("a", 10, 4), job("b", 50, 1)], cluster("1x4:V100"), 1) == (
        "needs 1 GPU; the jobs that have them rank higher under this policy"
    )
    assert reason_of("sjf", [job("a", 10, gpu_frac=0.8), job("b", 50, gpu_frac=0.5)], cluster("1x1:V100"), 1) == (
        "needs 50% of one GPU; no GPU has that much left that it may share"
    )
    assert reason_of("sjf", [job("a", 10, cpus=6), job("b", 50, cpus=3)], cluster(node("n", 4, cpus=8)), 1) == (
        "GPUs are idle, but no node with them has 3 CPUs and 0 B of memory left"
    )


def test_a_fraction_that_waits_for_cpus_is_told_so():
    told = reason_of(
        "sjf", [job("a", 10, cpus=6), job("b", 50, gpu_frac=0.5, cpus=3)], cluster(node("n", 4, cpus=8)), 1
    )
    assert "CPUs" in told


def test_a_job_that_can_never_run_is_told_so():
    assert reason_of("fifo", [job("a", gpus=9)], cluster("2x4:V100"), 0) == (
        "cannot run here: needs 9 GPUs, and the cluster has 8 such GPUs"
    )
    assert reason_of("fifo", [job("a", gpu_types=("H100",))], cluster("2x4:V100"), 0) == (
        "cannot run here: needs 1 GPU of type H100, and the cluster has 0 such GPUs"
    )


def test_a_job_that_runs_or_has_ended_has_no_reason():
    engine = engine_with([job("a")], cluster("1x1:V100"))
    assert engine.reason(0) is not None
    *_, ended = play("fifo", SCATTERED, cluster("2x2:V100"))
    assert isinstance(ended.journal.records[-1], JobFinished)
    assert ended.reason(0) is None
