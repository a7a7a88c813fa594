"""One policy, both worlds: the same jobs lead to the same commands on a virtual clock and as real processes.

A job here sleeps its steps away, so that a core more or less does not matter. Starting, saving and loading a process
take a tenth of a second or so where the virtual world takes none: the jobs of each policy are chosen so that such
delays do not change the order in which things happen (`test_the_jobs_are_far_enough_apart` checks that).
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from deployments import until

from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Command, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.spec import JobSpec
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import placement_of
from gpuwise.service.live.up import LocalDeployment, Settings
from gpuwise.service.offline.simulate import simulate

DEVICES = 2
SLOWER = (3.0, 9.0)
Did = tuple[str, str, Placement | None]


@dataclass(frozen=True)
class Coming:
    """A job: when it comes, how long it takes, on how many devices, and by when it should be done."""

    at_s: float
    duration_s: float
    gpus: int
    deadline_s: float
    util_frac: float = math.nan

    def slower(self, times: float) -> Coming:
        return Coming(
            self.at_s * times, self.duration_s * times, self.gpus, self.deadline_s * times, self.util_frac
        )  # fmt: skip


JOBS: dict[str, list[Coming]] = {
    "fifo": [
        Coming(0, 1, 1, 5), Coming(1.5, 5, 1, 6.5), Coming(3, 3, 2, 8), Coming(4.2, 1.5, 2, 9.2),
        Coming(5.7, 2, 1, 20.7), Coming(7.7, 5, 1, 12.7), Coming(8.9, 1, 2, 17.9),
    ],
    "srtf": [
        Coming(0, 2, 1, 5), Coming(1.5, 4, 2, 10.5), Coming(2.7, 5, 1, 7.7), Coming(4.2, 1, 1, 6.2),
        Coming(5.1, 5, 2, 7.1), Coming(6.6, 3, 1, 8.6), Coming(8.6, 1, 2, 13.6),
    ],
    "las?thresholds_gpu_s={0},{1}": [
        Coming(0, 3, 1, 5), Coming(0.9, 1, 1, 2.9), Coming(2.9, 1.5, 1, 11.9), Coming(4.1, 5, 1, 9.1),
        Coming(5.6, 5, 2, 7.6), Coming(7.1, 1, 2, 22.1), Coming(7.7, 1, 1, 16.7),
    ],
    "edf": [
        Coming(0, 3, 2, 15), Coming(1.5, 3, 2, 10.5), Coming(2.1, 5, 1, 11.1), Coming(3.3, 2, 1, 5.3),
        Coming(4.2, 1.5, 1, 9.2), Coming(4.8, 3, 1, 6.8), Coming(6, 5, 1, 8),
    ],
    "gain": [
        Coming(0, 3, 1, 99), Coming(0.6, 2, 2, 99), Coming(1.2, 1, 1, 99), Coming(2.4, 2, 2, 99), Coming(3.9, 5, 1, 99),
        Coming(4.8, 2, 1, 99), Coming(6.3, 2, 1, 99),
    ],
    "proactive": [
        Coming(0, 2, 1, 99, 0.3), Coming(1.5, 1, 1, 99, 0.3), Coming(2.1, 2, 1, 99, 0.3), Coming(3, 2, 1, 99, 0.4),
        Coming(3.9, 4, 1, 99, 0.3), Coming(5.1, 4, 1, 99, 0.2), Coming(6, 1, 1, 99, 0.3),
    ],
}  # fmt: skip
"""A policy joins by its name and jobs of its own."""

SLEEPER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from gpuwise import sdk
job = sdk.attach(save=lambda path: open(path, "w").close(), load=lambda path: None)
for step in job.steps(int(sys.argv[1])):
    time.sleep(0.02)
"""
SOURCE = str(Path(sys.modules["gpuwise"].__file__).parent.parent)


def named(policy: str, times: float = 1.0) -> str:
    """The policy, with its times in step with those of the jobs."""
    return policy.format(1.5 * times, 4 * times)


def virtual(policy: str, jobs: Sequence[Coming], jitter: random.Random | None = None) -> list[Did]:
    """The commands on a virtual clock; with jitter, each delay of a real machine is drawn by lot."""

    def delay(most_s: float) -> float:
        return jitter.uniform(0, most_s) if jitter else 0.0

    specs = [
        JobSpec(
            id=str(number), submit_s=job.at_s + delay(0.15), duration_s=job.duration_s + delay(0.35), gpus=job.gpus,
            deadline_s=job.deadline_s, resume_s=delay(0.4), suspend_s=delay(0.25), gpu_util_frac=job.util_frac,
        )
        for number, job in enumerate(jobs, start=1)
    ]  # fmt: skip
    engine: Engine = simulate(specs, ClusterSpec.parse(f"1x{DEVICES}:V100"), named(policy)).engine
    ids = engine.state.jobs.ids
    return [
        (type(record).__name__, ids[record.job], getattr(record, "placement", None))
        for record in engine.journal.records
        if isinstance(record, Command)
    ]


def real(deployment: LocalDeployment, jobs: Sequence[Coming]) -> list[Did]:
    """The commands when every job is a process."""
    try:
        begun, begun_s = time.monotonic(), deployment.clock.now_s()
        for job in jobs:
            time.sleep(max(0.0, begun + job.at_s - time.monotonic()))
            steps = round(job.duration_s / 0.02)
            request = JobRequest(
                command=(sys.executable, "-S", "-c", SLEEPER, str(steps), SOURCE), duration_s=job.duration_s,
                gpus=job.gpus, deadline_s=deployment.clock.unix(begun_s + job.deadline_s), gpu_util_frac=job.util_frac,
            )  # fmt: skip
            deployment.controller.submit([request], "ada").result(10)
        until(lambda: not deployment.controller.live_records(), "all to end", 300)
        assert {record.status for record in deployment.store.jobs()} == {"succeeded"}
        return [
            (line.kind, line.uid, placement_of(body["placement"]) if "placement" in body else None)
            for line in deployment.store.lines()
            if line.kind in ("Start", "Resume", "Suspend", "Migrate", "Resize", "Stop")
            for body in (json.loads(line.body),)
        ]
    finally:
        deployment.close()


def open_deployment(folder: Path, policy: str, times: float = 1.0) -> LocalDeployment:
    return LocalDeployment(Settings(state=folder, policy=named(policy, times), devices=DEVICES))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[list[Did]]]:
    """All policies at work at the same time: their jobs sleep."""
    folder = tmp_path_factory.mktemp("worlds")
    deployments = {policy: open_deployment(folder / str(number), policy) for number, policy in enumerate(JOBS)}
    with ThreadPoolExecutor(len(JOBS)) as pool:
        return {policy: pool.submit(real, deployment, JOBS[policy]) for policy, deployment in deployments.items()}


@pytest.mark.parametrize("policy", JOBS)
def test_the_jobs_are_far_enough_apart(policy: str) -> None:
    plain = virtual(policy, JOBS[policy])
    for seed in range(10):
        assert virtual(policy, JOBS[policy], random.Random(seed)) == plain


@pytest.mark.parametrize("policy", JOBS)
def test_the_same_commands_in_both_worlds(policy: str, worlds: dict[str, Future[list[Did]]], tmp_path: Path) -> None:
    """On a machine that is busy with something else, delays are longer; then everything is tried again, slower."""
    expected = virtual(policy, JOBS[policy])
    did = worlds[policy].result()
    for times in SLOWER:
        if did != expected:
            slower = open_deployment(tmp_path / f"{times:g} times", policy, times)
            did = real(slower, [job.slower(times) for job in JOBS[policy]])
    assert did == expected
    if policy not in ("fifo", "gain", "proactive"):
        assert sum(kind == "Suspend" for kind, _, _ in expected) >= 3
    if policy == "proactive":
        assert sum(place is not None and place.sharing is Sharing.SHARED for _, _, place in expected) >= 4
