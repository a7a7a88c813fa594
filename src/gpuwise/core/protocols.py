"""What a policy, an executor and a rate model are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gpuwise.core.commands import Command, Decision, Placement
from gpuwise.core.events import Event

if TYPE_CHECKING:
    from gpuwise.core.capacity import Capacity
    from gpuwise.core.jobs import JobTable, Shape
    from gpuwise.core.nodes import NodeTable
    from gpuwise.core.view import ClusterView


class Policy(Protocol):
    """Decides who runs where: a pure function of the view, the same in every world.

    A policy may also have ``rank(view, job) -> float``, by which the waiting jobs are kept in line (by submission
    where it has none): a number that does not change while the job waits. It may have ``placer``, its placement where
    the user asks for no other. And one that cuts GPUs has ``holds(capacity, shape, placer) -> bool``: whether an empty
    cluster, of which no GPU is cut, could ever run a job.
    """

    name: str
    wakes_on: frozenset[type[Event]]

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Looks at the cluster and says what to do."""
        ...


Placer = Callable[["Capacity", "Shape", int], Placement | None]
"""Finds room for so many GPUs of a shape, or none. It reads the capacity and changes nothing."""


def holds(policy: Policy, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
    """Whether an empty cluster could ever run a job: as the policy says, else by whether its placer finds room."""
    own: Callable[[Capacity, Shape, Placer], bool] | None = getattr(policy, "holds", None)
    return placer(capacity, shape, shape.gpus) is not None if own is None else own(capacity, shape, placer)


class RateModel(Protocol):
    """How fast jobs run where they are: what a policy believes, or what is true.

    A model that knows how sure it is may also have ``slowest``, with the arguments of `rates`: the lower ends of their
    intervals, and 0 where it cannot tell. A policy asks ``getattr(view.rates, "slowest", view.rates.rates)``.
    """

    def rates(
        self, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
    ) -> Sequence[float]:
        """Steps per second of each job on its placement, beside the jobs it shares devices with."""
        ...


MakeRates = Callable[["JobTable", "NodeTable"], RateModel]
"""Makes a rate model of the jobs and nodes of a cluster."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is really running, as an executor sees it."""

    placed: Mapping[int, Placement] = field(default_factory=dict)
    lost_nodes: frozenset[int] = frozenset()


class Executor(Protocol):
    """Carries commands out and reports what happened: on a virtual clock, on this machine, on a cluster."""

    def apply(self, now_s: float, commands: Sequence[Command]) -> None:
        """Begins to carry out commands."""
        ...

    def wait(self, until_s: float | None) -> tuple[float, list[Event]] | None:
        """The next events and their time, at the latest ``until_s``; None when nothing will ever happen again."""
        ...

    def facts(self) -> ClusterFacts:
        """What runs where, really."""
        ...
