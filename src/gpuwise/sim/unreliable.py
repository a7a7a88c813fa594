"""A simulated world that is not to be relied on: it refuses some starts and reports some things twice."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwise.core.assignments import Assignment, Desired, Intent
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.observations import AttemptObserved, Cause, Details, Observations, Phase
from gpuwise.sim.virtual import VirtualExecutor

REFUSED_EVERY = 4
"""Of the first starts of jobs."""
TWICE_EVERY = 5
"""Of the observations."""


class UnreliableExecutor:
    """A virtual executor whose nodes refuse the first start of every fourth job."""

    def __init__(self, world: VirtualExecutor, nodes: NodeTable) -> None:
        self._world = world
        self._nodes = nodes
        self._now_s = 0.0
        self._refusals: list[AttemptObserved] = []
        self._again: list[AttemptObserved] = []
        self._starts = self._observations = 0

    def observe(self, until_s: float | None) -> Observations | None:
        """What happens next: refusals at once, and what is said twice together with what follows it."""
        if self._refusals:
            refusals, self._refusals = self._refusals, []
            return self._now_s, refusals
        seen = self._world.observe(until_s)
        if seen is None:
            return None
        self._now_s, happened = seen
        again, self._again = self._again, [each for each in happened if self._is_said_twice(each)]  # type: ignore[misc]
        return self._now_s, [*again, *happened]

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        """Refuses what it refuses, and lets the world follow the rest."""
        taken = [each for each in desired if not (isinstance(each, Assignment) and self._refuses(each))]
        if taken:
            self._world.follow(taken, complete)

    def _is_said_twice(self, seen: object) -> bool:
        if not isinstance(seen, AttemptObserved):
            return False
        self._observations += 1
        return self._observations % TWICE_EVERY == 0

    def _names(self, wanted: Assignment) -> tuple[str, ...]:
        return () if wanted.placement is None else tuple(sorted({self._nodes.names[n] for n in wanted.placement.nodes}))

    def _refuses(self, wanted: Assignment) -> bool:
        """Only a first start is refused: nothing of the job is anywhere, so that nothing has to leave."""
        if wanted.intent is not Intent.RUN or wanted.attempt > 1:
            return False
        self._starts += 1
        if self._starts % REFUSED_EVERY:
            return False
        details = Details(cause=Cause.BUSY, text="in use", avoid=self._names(wanted))
        self._refusals.append(AttemptObserved(self._now_s, wanted.job, 1, Phase.REFUSED, details=details))
        return True
