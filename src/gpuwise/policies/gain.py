"""The newest GPUs go to the jobs that gain most from them; and the even assignment as a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.policies.gpu_types.assignment import Assignment
from gpuwise.policies.gpu_types.gains import RATES, SIGNALS, log_gain, outlook


@dataclass(frozen=True)
class Gain:
    """The newest GPUs go to the jobs that gain most from them (Takayama et al.)."""

    name = "gain"
    wakes_on = CAPACITY_CHANGES
    signal: str = RATES
    """Where a job's gain is from: ``rates`` (its speeds, measured or predicted) or ``utilization`` alone."""
    passes: int = 0
    """A job that this many later ones have passed is started first, and if it does not fit GPUs are reserved for it.
    Jobs that belong on the same GPU type then start in the order of submission, not by gain. 0 is no bound."""

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise UnknownNameError(f"signal of policy {self.name!r}", self.signal, SIGNALS)
        if self.passes < 0:
            raise GpuwiseError(f"policy {self.name!r}: passes is {self.passes}; it must be 0 (no bound) or more")

    def rank(self, view: ClusterView, job: int) -> float:
        """Largest gain first; jobs of one kind have the same rank, and start in the order of submission."""
        return -log_gain(view.nodes, outlook(view, job, self.signal).times_s)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs that were passed too often, then those that use GPUs best."""
        if not view.waiting:
            return NOTHING
        assignment = Assignment(view.draft(), self.signal)
        if self.passes:
            assignment.start_passed(self.passes)
        assignment.start_by_gain(in_order=self.passes > 0)
        return assignment.draft.seal(reasons=assignment.explain)


@dataclass(frozen=True)
class FairGain(Gain):
    """The newest GPUs go to the jobs that gain most, but at most ``passes`` later jobs pass a job."""

    name = "gain-fair"
    passes: int = 100


@dataclass(frozen=True)
class Even:
    """Jobs are spread evenly over the GPU types in the order of submission, whatever they gain."""

    name = "even"
    wakes_on = CAPACITY_CHANGES

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts jobs in order, each on the type of which the largest part is idle."""
        if not view.waiting:
            return NOTHING
        assignment = Assignment(view.draft())
        assignment.start_evenly()
        return assignment.draft.seal(reasons=assignment.explain)
