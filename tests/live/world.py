"""A controller in a world that is made up: an in-memory store, jobs on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpuwise.core.assignments import Desired
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.events import Event
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Cause, Details, Observations, Phase
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.records import Store
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.intake import JobIntake
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy
from gpuwise.sim.executor.virtual import VirtualExecutor


class World:
    """An executor whose clock jumps: jobs take the time they declare."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.desired: list[Desired] = []
        self.queued: list[Event | AttemptObserved] = []
        self.engine: Engine | None = None
        """The newest engine: a simulated world is made of its jobs."""
        self._simulates: Engine | None = None
        self.woken = False

    def monotonic(self) -> float:
        return self.now_s

    def engines(self, policy: str) -> Callable[[ClusterSpec], Engine]:
        """Makes engines whose jobs are those of this world."""

        def make(spec: ClusterSpec) -> Engine:
            self.engine = Engine(spec, make_policy(policy), placer=best_fit)
            return self.engine

        return make

    def _catch_up(self) -> None:
        if self._simulates is not self.engine:
            assert self.engine is not None
            state = self.engine.state
            state.now_s = max(state.now_s, self.now_s)
            self._jobs = VirtualExecutor.from_state(state, DeclaredRates(state.jobs, state.nodes))
            self._simulates = self.engine

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        if complete:
            self.begin_again()
            self._catch_up()
            return
        self.desired += desired
        if self._simulates is self.engine:  # else it begins where the new engine is, which knows all this
            self._jobs.follow(desired)

    def observe(self, until_s: float | None) -> Observations | None:
        self._catch_up()
        if self.woken or self.queued:
            self.woken = False
            queued, self.queued = self.queued, []
            return self.now_s, queued
        seen = self._jobs.observe(until_s)
        if seen is None:
            return None
        self.now_s = max(self.now_s, seen[0])
        return self.now_s, seen[1]

    def wake(self) -> None:
        self.woken = True

    def fail(self, uid: str, attempt: int = 1, cause: Cause = Cause.ERROR, text: str = "", **more: Any) -> None:
        """An attempt of a job ends on an error."""
        self.lose(uid)
        details = Details(cause=cause, text=text or str(cause), started_s=0.0, **more)
        self.queued.append(AttemptObserved(self.now_s, uid, attempt, Phase.FAILED, 0.0, details=details))

    def lose(self, uid: str) -> None:
        """An attempt of a job is gone, and what it has done with it."""
        job = self._jobs._jobs.row_of[uid]
        if job in self._jobs._placed:
            self._jobs._lose_work(self.now_s, job)

    def succeed(self, uid: str) -> None:
        """The first attempt of a job ends before its time."""
        self._jobs._leave(self.now_s, self._jobs._jobs.row_of[uid])
        self.queued.append(AttemptObserved(self.now_s, uid, 1, Phase.SUCCEEDED))

    def look_ahead(self, until_s: float | None) -> Observations | None:
        """What happens next to the jobs, for a test to queue."""
        return self._jobs.observe(until_s)

    def begin_again(self) -> None:
        """Jobs continue as the engine has them now."""
        self._simulates = None

    def close(self) -> None:
        pass


class Bench:
    """A controller, its world, and turns by hand."""

    def __init__(self, store: Store, cluster: str = "1x4:V100", policy: str = "fifo", **more: Any) -> None:
        self.world = more.pop("world", None) or World()
        self.store = store
        self.clock = Clock(1000.0, wall=lambda: 1000.0 + self.world.now_s, monotonic=self.world.monotonic)
        make = more.pop("make", self.world.engines(policy))
        self.controller = Controller(store, self.world, ClusterSpec.parse(cluster), make, self.clock, **more)

    def submit(self, *requests: JobRequest, user: str = "ada", key: str | None = None) -> list[str]:
        future = self.controller.submit(requests, user, key)
        self.controller.turn()
        return [record.uid for record in future.result(0)]

    def ask(self, question: Callable[[JobIntake], Any]) -> Any:
        """The answer to a question about the state between two turns."""
        future = self.controller.ask(question)
        self.controller.turn()
        return future.result(0)

    def settle(self, turns: int = 10_000) -> None:
        """Takes turns until nothing is left to happen."""
        for _ in range(turns):
            before = (self.world.now_s, len(self.world.desired), self.world.woken)
            self.controller.turn()
            idle = (self.world.now_s, len(self.world.desired), self.world.woken) == before
            if idle and not self.controller.live_records():
                return
        raise AssertionError("the jobs did not come to an end")


def request(duration_s: float = 10.0, gpus: int = 1, **more: Any) -> JobRequest:
    return JobRequest(command=("true",), duration_s=duration_s, gpus=gpus, **more)
