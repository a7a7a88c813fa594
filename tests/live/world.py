"""A controller in a world that is made up: an in-memory store, jobs on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwise.core.commands import Command
from gpuwise.core.events import Event
from gpuwise.core.protocols import ClusterFacts
from gpuwise.core.records import Store
from gpuwise.core.request import JobRequest
from gpuwise.core.spec import ClusterSpec
from gpuwise.core.state import ClusterState, DeclaredRates
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.reports import Report
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy
from gpuwise.sim.virtual import VirtualExecutor


class World:
    """An executor whose clock jumps: jobs take the time they declare."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.commands: list[Command] = []
        self.queued: list[Event] = []
        self.told: list[Report] = []
        self._woken = False

    def monotonic(self) -> float:
        return self.now_s

    def bind(self, state: ClusterState) -> None:
        state.now_s = max(state.now_s, self.now_s)
        self._jobs = VirtualExecutor.going_on(state, DeclaredRates(state.jobs, state.nodes))

    def apply(self, now_s: float, commands: Sequence[Command]) -> None:
        self.commands += commands
        self._jobs.apply(now_s, commands)

    def wait(self, until_s: float | None) -> tuple[float, list[Event]] | None:
        if self._woken or self.queued:
            self._woken = False
            queued, self.queued = self.queued, []
            return self.now_s, queued
        batch = self._jobs.wait(until_s)
        if batch is None:
            return None
        self.now_s = max(self.now_s, batch[0])
        return self.now_s, batch[1]

    def wake(self) -> None:
        self._woken = True

    def reports(self) -> list[Report]:
        told, self.told = self.told, []
        return told

    def facts(self) -> ClusterFacts:
        return self._jobs.facts()

    def close(self) -> None:
        pass


class Bench:
    """A controller, its world, and turns by hand."""

    def __init__(self, store: Store, cluster: str = "1x4:V100", policy: str = "fifo", **more: Any) -> None:
        self.world = more.pop("world", None) or World()
        self.store = store
        self.clock = Clock(1000.0, wall=lambda: 1000.0 + self.world.now_s, monotonic=self.world.monotonic)

        def make(spec: ClusterSpec) -> Engine:
            return Engine(spec, make_policy(policy), placer=best_fit)

        self.controller = Controller(store, self.world, ClusterSpec.parse(cluster), make, self.clock, **more)

    def submit(self, *requests: JobRequest, user: str = "ada", key: str | None = None) -> list[str]:
        future = self.controller.submit(requests, user, key)
        self.controller.turn()
        return [record.uid for record in future.result(0)]

    def settle(self, turns: int = 10_000) -> None:
        """Takes turns until nothing is left to happen."""
        for _ in range(turns):
            before = (self.world.now_s, len(self.world.commands), self.world._woken)
            self.controller.turn()
            idle = (self.world.now_s, len(self.world.commands), self.world._woken) == before
            if idle and not self.controller.live_records():
                return
        raise AssertionError("the jobs did not come to an end")


def request(duration_s: float = 10.0, gpus: int = 1, **more: Any) -> JobRequest:
    return JobRequest(command=("true",), duration_s=duration_s, gpus=gpus, **more)
