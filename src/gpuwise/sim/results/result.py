"""The result of a simulation: its figures, its jobs, and what happened over time."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import polars as pl

from gpuwise.core.job.life_cycle import Status
from gpuwise.core.units import format_duration
from gpuwise.engine.engine import Engine
from gpuwise.engine.metrics import Metrics, measure
from gpuwise.sim.results.history import Use, node_changes, offered, stays_frame, timeline_frame, uses

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SimulationResult:
    """The outcome of a trace on a cluster under a policy."""

    policy: str
    trace: str
    cluster: str
    placement: str
    seed: int
    wall_s: float
    """How long the simulation itself took."""
    engine: Engine

    @cached_property
    def metrics(self) -> Metrics:
        """The figures by which runs are compared."""
        used_gpu_s = math.fsum(gpus * (to_s - from_s) for from_s, to_s, gpus in self.uses)
        journal = self.engine.journal
        over_time = partial(offered, journal) if node_changes(journal) else None
        return measure(self.engine.state, self.engine.decide_s, used_gpu_s, over_time)

    @cached_property
    def uses(self) -> list[Use]:
        """How much of the GPUs was in use when: (from_s, to_s, GPUs), to be added up."""
        return uses(self.engine.journal, self.engine.state)

    def as_dict(self) -> dict[str, Any]:
        """The figures with what they are of, for JSON."""
        about = {"policy": self.policy, "trace": self.trace, "cluster": self.cluster, "placement": self.placement}
        return {**about, "seed": self.seed, **self.metrics.as_dict(), "wall_s": self.wall_s}

    def to_frame(self) -> pl.DataFrame:
        """One row per job: when it was submitted, started and ended, and how often it was preempted or moved."""
        jobs, count = self.engine.state.jobs, len(self.engine.state.jobs)
        columns = jobs.columns()
        shapes = [jobs.shapes[code] for code in columns["shape"].tolist()]
        names = {int(status): status.name.lower() for status in Status}
        return pl.DataFrame(
            {
                "id": jobs.ids[:count],
                "tenant": [jobs.tenants[code] for code in columns["tenant"].tolist()],
                "gpus": [shape.gpus for shape in shapes],
                "submit_s": columns["submit_s"],
                "start_s": columns["first_start_s"],
                "finish_s": columns["finish_s"],
                "jct_s": columns["finish_s"] - columns["submit_s"],
                "queue_s": columns["finish_s"] - columns["submit_s"] - columns["held_s"],
                "gpu_s": columns["attained_gpu_s"],
                "status": [names[code] for code in columns["status"].tolist()],
                "preemptions": columns["preemptions"],
                "migrations": columns["migrations"],
                "deadline_s": columns["deadline_s"],
            }
        )

    def stays(self) -> pl.DataFrame:
        """Which GPUs each job had when: one row per job, node and stay."""
        return stays_frame(self.engine.journal, self.engine.state)

    def timeline(self) -> pl.DataFrame:
        """Jobs waiting and running, GPUs allocated and used, at every change."""
        return timeline_frame(self.engine.journal, self.engine.state)

    def plot(self) -> Figure:
        """Completion times, queue, use of the GPUs and a Gantt chart in one figure."""
        from gpuwise.sim.results.plots import overview  # matplotlib is slow to import, and optional

        return overview([self])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td style='text-align:right'>{value}</td></tr>"
            for name, value in self._shown().items()
        )
        return f"<table><caption>{html.escape(self.policy)} on {html.escape(self.cluster)}</caption>{rows}</table>"

    def __str__(self) -> str:
        return f"{self.policy} on {self.cluster}: " + ", ".join(
            f"{name} {value}" for name, value in self._shown().items()
        )

    def _shown(self) -> dict[str, str]:
        metrics = self.metrics
        return {
            "jobs": str(metrics.jobs),
            "average JCT": format_duration(metrics.avg_jct_s),
            "p99 JCT": format_duration(metrics.p99_jct_s),
            "average queue": format_duration(metrics.avg_queue_s),
            "makespan": format_duration(metrics.makespan_s),
            "GPUs in use": f"{100 * metrics.gpu_util_frac:.1f}%",
            "preemptions": str(metrics.preemptions),
        }
