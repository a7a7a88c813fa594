"""The third world: a remote cluster that is late, repeats itself, refuses, starts half a gang and loses nodes.

Jobs of every kind go through the real controller and store. Nothing may be lost, run twice at once or over-allocated;
the cluster counts that itself.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from remote import RemoteCluster, Trouble

from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.job.request import JobRequest
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy
from gpuwise.store.sql import open_store

POLICIES = ("fifo", "fifo-backfill", "srtf", "las", "drf", "tetris", "gain", "proactive", "pack", "share")
RUNS_PER_POLICY = 30
JOBS = 10
MOST_TURNS = 20_000


class Site:
    """A controller that may be started again at any time, and the cluster that goes on without it."""

    def __init__(self, folder: Path, seed: int, policy: str, trouble: Trouble | None = None) -> None:
        self.rng = random.Random(f"{seed} {policy}")
        self.policy = policy
        self.store = open_store(folder / f"{policy}-{seed}.db")
        nodes = [NodeSpec(name=f"n{i}", gpu_type="V100", gpus=4, uid=f"n{i}.0", cpus=16.0) for i in range(3)]
        self.work: dict[str, float] = {}
        self.cluster = RemoteCluster(self.rng, nodes, self.work.__getitem__, trouble or Trouble())
        self.submitted: list[str] = []
        self.cancelled: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """The controller dies, and another begins with what is in the store."""
        cluster = self.cluster
        clock = Clock(1000.0, wall=lambda: 1000.0 + cluster.now_s, monotonic=lambda: cluster.now_s)

        def make(spec: ClusterSpec) -> Engine:
            return Engine(spec, make_policy(self.policy), placer=best_fit)

        nodes = ClusterSpec(tuple(cluster.nodes.values()))
        self.controller = Controller(self.store, cluster, nodes, make, clock)

    def submit(self) -> None:
        work_s = self.rng.choice([1.0, 5.0, 20.0])
        gpus = self.rng.choice([1, 1, 2, 3, 6])
        more: dict[str, Any] = {}
        if gpus == 1 and self.rng.random() < 0.5:
            more = {"gpu_frac": self.rng.choice([0.25, 0.5]), "gpu_util_frac": 0.3}
        elif self.rng.random() < 0.3:
            more = {"min_gpus": 1, "max_gpus": 6}
        request = JobRequest(command=("train",), duration_s=work_s, gpus=gpus, retries=100, **more)
        self.work[str(len(self.work) + 1)] = work_s  # known before anything can start
        future = self.controller.submit([request], "ada")
        self.controller.turn()
        self.submitted += [record.uid for record in future.result(0)]

    def disturb(self) -> None:
        """A user does something, or the controller is started again."""
        act = self.rng.random()
        live = [record.uid for record in self.controller.live_records()]
        if act < 0.04:
            self.restart()
        elif act < 0.06 and live:
            uid = self.rng.choice(live)
            self.cancelled.add(uid)
            self.controller.cancel([uid], "ada")
        elif act < 0.12 and live:
            self.controller.suspend([self.rng.choice(live)])
        elif act < 0.18 and live:
            self.controller.resize(self.rng.choice(live), self.rng.choice([1, 2, 4]))  # may be refused
        elif act < 0.5:
            self.controller.resume(live)

    def run(self) -> None:
        for _ in range(JOBS):
            self.submit()
        for turn in range(MOST_TURNS):
            if self.cluster.now_s < 120.0:
                self.disturb()
            elif turn % 50 == 0:
                self.controller.resume([record.uid for record in self.controller.live_records()])
            self.controller.turn()
            assert self.controller.trouble == "", self.controller.trouble
            if not self.controller.live_records() and self.cluster.is_idle:
                return
        waiting = [(record.uid, record.status, record.held) for record in self.controller.live_records()]
        raise AssertionError(f"after {MOST_TURNS} turns at {self.cluster.now_s} s: {waiting}")


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what is written here need not survive the machine."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_lost_or_run_twice_in_a_world_that_cannot_be_relied_on(policy: str, fast_folder: Path) -> None:
    seen: dict[str, int] = {}
    for seed in range(RUNS_PER_POLICY):
        site = Site(fast_folder, seed, policy)
        try:
            site.run()
        except Exception as error:
            raise AssertionError(f"policy {policy}, seed {seed}: {error}") from error
        status = {record.uid: record.status for record in site.store.jobs(limit=1000)}
        site.store.close()
        for uid in site.submitted:
            ended = site.cluster.finished.get(uid, 0)
            if status[uid] == "succeeded":
                assert ended, f"seed {seed}: job {uid} never did its work"
            else:
                assert (status[uid], uid in site.cancelled) == ("cancelled", True), (seed, uid, status[uid])
        for what, count in site.cluster.counted.items():
            seen[what] = seen.get(what, 0) + count
    assert all(seen.values()), f"not everything went wrong that should: {seen}"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_is_not_sent_right_again_to_the_node_that_refused_it(policy: str, fast_folder: Path) -> None:
    """One of three nodes takes nobody; there is room for all on the others."""
    calm = Trouble(0.0, 0.0, 0.0, 0.0, 0.0, float("inf"), late_s=0.5, bad_node="n0")
    site = Site(fast_folder, 0, policy, calm)
    for number in range(6):
        site.work[str(number + 1)] = 20.0
        site.controller.submit([JobRequest(command=("train",), duration_s=20.0, gpu_util_frac=0.3)], "ada")
    site.controller.turn()
    for _ in range(MOST_TURNS):
        if not site.controller.live_records():
            break
        site.controller.turn()
    assert len(site.cluster.finished) == 6
    assert 1 <= site.cluster.counted["refused"] <= 6
    site.store.close()
