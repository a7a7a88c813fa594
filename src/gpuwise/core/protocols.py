"""What a policy, an executor and a rate model are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gpuwise.core.assignments import Desired
from gpuwise.core.commands import Decision, Placement
from gpuwise.core.events import Event
from gpuwise.core.observations import Observations

if TYPE_CHECKING:
    from gpuwise.core.cluster.capacity import Capacity
    from gpuwise.core.cluster.nodes import NodeTable
    from gpuwise.core.decision.view import ClusterView
    from gpuwise.core.job.shape import Shape
    from gpuwise.core.job.table import JobTable


class Policy(Protocol):
    """Decides which job runs where: a pure function of the view, the same in every world.

    A policy may also have ``rank(view, job) -> float``, by which the queue is sorted (by submission where it has none):
    a number that does not change while the job waits. It may have ``placer``, its placement where the user asks for no
    other. Its ``columns``, a mapping of names to defaults, are numbers of its own per job: read as ``view.own(name)``,
    written by ``draft.note(name, job, value)``, and kept over restarts. And one that partitions GPUs has
    ``feasible(capacity, shape, placer) -> bool``: whether an empty cluster, of which no GPU is partitioned, could ever
    run a job.
    """

    name: str
    wakes_on: frozenset[type[Event]]

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Looks at the cluster and says what to do."""
        ...


Placer = Callable[["Capacity", "Shape", int], Placement | None]
"""Finds room for a number of GPUs of a shape, or none. It reads the capacity and changes nothing; it is shown one that
cannot be changed, unless it says ``only_reads`` of itself, as the built-in ones do for speed."""


def feasible(policy: Policy, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
    """Whether an empty cluster could ever run a job: as the policy says, else by whether its placer finds room."""
    own: Callable[[Capacity, Shape, Placer], bool] | None = getattr(policy, "feasible", None)
    return placer(capacity, shape, shape.gpus) is not None if own is None else own(capacity, shape, placer)


class RateModel(Protocol):
    """How fast jobs run where they are: what a policy believes, or what is true.

    Rates are `Rates`: values, NaN where they are not known and 0 where a job makes no progress, with ``lows``, the
    lower ends of their intervals. A model that has no lower ends may give any sequence of numbers.
    """

    def rates(
        self, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
    ) -> Sequence[float]:
        """Steps per second of each job on its placement, beside the jobs it shares devices with."""
        ...


MakeRates = Callable[["JobTable", "NodeTable"], RateModel]
"""Makes a rate model of the jobs and nodes of a cluster."""


class Executor(Protocol):
    """Makes a world follow what is wanted and reports what it sees: on a virtual clock, on this machine, on a cluster.

    It never reads the engine's state. It starts what runs next on a device only after what was there before was seen to
    have left.
    """

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        """Takes note of what is wanted and returns; ``complete`` if that is all, as after a restart."""
        ...

    def observe(self, until_s: float | None) -> Observations | None:
        """What is seen next, at the latest at ``until_s``; None when nothing will ever happen again."""
        ...
