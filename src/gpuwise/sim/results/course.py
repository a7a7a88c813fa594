"""What charts are drawn from: a run as columns, its averages over time, and the distribution of completion times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.tables import Array

if TYPE_CHECKING:
    from gpuwise.sim.results.result import SimulationResult

CDF_POINTS = 400
_DISTINGUISHED_BY = ("policy", "cluster", "placement", "trace", "seed")


@dataclass(frozen=True, eq=False)
class Course:
    """A run as columns, per job and per stay on a node; times count from the first submission."""

    label: str
    result: SimulationResult
    node_names: Sequence[str]
    node_gpus: Array
    ids: Sequence[str]
    gpus_asked: Array
    submit_s: Array
    finish_s: Array
    """NaN for a job that never ended."""
    queue_s: Array
    job: Array
    """Of each stay: the job's row, the node's row, the devices as bits, GPUs (a share counts as one), from, to."""
    node: Array
    devices: Array
    allocated: Array
    begin_s: Array
    end_s: Array
    uses: Array
    """Three rows: from, to and GPUs of each time that GPUs were in use."""

    @property
    def jct_s(self) -> Array:
        """Completion times of the jobs that ended, shortest first."""
        jct_s = self.finish_s - self.submit_s
        return np.sort(jct_s[np.isfinite(jct_s)])

    @property
    def span_s(self) -> float:
        """From the first submission to the last event."""
        moments = np.concatenate((self.finish_s[np.isfinite(self.finish_s)], self.end_s, self.submit_s))
        return float(moments.max()) if len(moments) else 0.0

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return int(self.node_gpus.sum())

    def waiting(self, edges_s: Array) -> Array:
        """Jobs without GPUs, on average in each bin."""
        ended = np.isfinite(self.finish_s)
        # A gang on several nodes is several stays, but one job that runs.
        _, first = np.unique(np.stack((self.job.astype("f8"), self.begin_s)), axis=1, return_index=True)
        at_s = (self.submit_s, self.finish_s[ended], self.begin_s[first], self.end_s[first])
        change = (np.ones(len(self.submit_s)), -np.ones(ended.sum()), -np.ones(len(first)), np.ones(len(first)))
        return _not_below_zero(time_average(np.concatenate(at_s), np.concatenate(change), edges_s)[0])

    def allocated_frac(self, edges_s: Array) -> Array:
        """The part of the cluster's GPUs that is allocated, on average in each bin."""
        return self._frac(self.begin_s, self.end_s, self.allocated, edges_s)

    def used_frac(self, edges_s: Array) -> Array:
        """The part of the cluster's GPUs that is in use, by the utilization of each job that makes steps."""
        begin_s, end_s, gpus = self.uses
        return self._frac(begin_s, end_s, gpus, edges_s)

    def _frac(self, begin_s: Array, end_s: Array, gpus: Array, edges_s: Array) -> Array:
        at_s, change = np.concatenate((begin_s, end_s)), np.concatenate((gpus, -gpus))
        return _not_below_zero(time_average(at_s, change, edges_s)[0] / max(1, self.gpus))


def courses(results: Sequence[SimulationResult]) -> list[Course]:
    """The courses of runs, each with a label of its own."""
    if not results:
        raise GpuwiseError("there are no results to show; simulate at least one policy")
    return [_course(result, label) for result, label in zip(results, labels(results), strict=True)]


def _course(result: SimulationResult, label: str) -> Course:
    nodes, jobs, stays = result.engine.state.nodes, result.to_frame(), result.stays()
    submit_s = jobs["submit_s"].to_numpy()
    start_s = float(submit_s.min()) if len(submit_s) else 0.0
    row_of = {name: row for row, name in enumerate(nodes.names)}
    return Course(
        label=label,
        result=result,
        node_names=nodes.names,
        node_gpus=nodes.gpus[: len(nodes)],
        ids=jobs["id"].to_list(),
        gpus_asked=jobs["gpus"].to_numpy(),
        submit_s=submit_s - start_s,
        finish_s=jobs["finish_s"].to_numpy() - start_s,
        queue_s=jobs["queue_s"].to_numpy(),
        job=stays["job"].to_numpy(),
        node=np.array([row_of[name] for name in stays["node"].to_list()], dtype="i8"),
        devices=stays["devices"].to_numpy(),
        allocated=stays["gpus"].to_numpy(),
        begin_s=stays["start_s"].to_numpy() - start_s,
        end_s=stays["end_s"].to_numpy() - start_s,
        uses=np.array(result.uses, dtype="f8").reshape(-1, 3).T - np.array([[start_s], [start_s], [0.0]]),
    )


def labels(results: Sequence[SimulationResult]) -> list[str]:
    """Distinct names of runs: the policy, and what else differs between runs of the same policy."""
    chosen = ["policy"]
    for name in _DISTINGUISHED_BY[1:]:
        if len({_label(result, chosen) for result in results}) == len(results):
            break
        if len({getattr(result, name) for result in results}) > 1:
            chosen.append(name)
    plain = [_label(result, chosen) for result in results]
    return [text if plain.count(text) == 1 else f"{text} ({plain[:i].count(text) + 1})" for i, text in enumerate(plain)]


def _label(result: SimulationResult, names: Sequence[str]) -> str:
    return ", ".join(f"seed {result.seed}" if name == "seed" else str(getattr(result, name)) for name in names)


def time_edges(runs: Sequence[Course], bins: int) -> Array:
    """The edges of equal bins from 0 to the end of the longest run."""
    return np.linspace(0.0, max(run.span_s for run in runs) or 1.0, bins + 1)


def time_average(at_s: Array, change: Array, edges_s: Array, row: Array | None = None, rows: int = 1) -> Array:
    """Averages in equal bins of quantities that change by steps: an array of rows by bins.

    A change in the middle of a bin counts for the rest of that bin, and fully in every later one; so the mean of all
    bins is the time average itself, however few they are.
    """
    bins = len(edges_s) - 1
    width_s = (edges_s[-1] - edges_s[0]) / bins
    place = (at_s - edges_s[0]) / width_s
    bin_of = np.clip(place.astype("i8"), 0, bins - 1)
    part = np.clip(bin_of + 1 - place, 0.0, 1.0)
    cell = bin_of + (0 if row is None else row * bins)
    in_bin = np.bincount(cell, change * part, rows * bins).reshape(rows, bins)
    whole = np.bincount(cell, change, rows * bins).reshape(rows, bins)
    before = np.cumsum(whole, axis=1) - whole
    averages: Array = before + in_bin
    return averages


def _not_below_zero(values: Array) -> Array:
    """Without the rounding errors of sums that should be 0."""
    cleaned: Array = np.maximum(values.round(9), 0.0)
    return cleaned


def cdf_points(ordered: Array, most: int = CDF_POINTS) -> tuple[Array, Array]:
    """At most ``most`` points of the cumulative distribution of ordered values; the last is the largest value, at 1."""
    count = len(ordered)
    if not count:
        return np.zeros(0), np.zeros(0)
    rows = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype("i8"))
    return ordered[rows], (rows + 1) / count


def cdf_at(ordered: Array, grid: Array) -> Array:
    """The part of ordered values that is not above each value of a grid."""
    shares: Array = np.searchsorted(ordered, grid, side="right") / max(1, len(ordered))
    return shares
