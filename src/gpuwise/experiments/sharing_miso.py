"""MISO's trace on eight A100s: exclusive, the best static partition, and GPUs cut as jobs come and go.

MISO (Li et al., SoCC'22): 49 % and 16 % lower average JCT than unpartitioned and than the best static partition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import RateModel
from gpuwise.core.rates import DeclaredRates
from gpuwise.devices import gpu_type
from gpuwise.experiments.miso_jobs import MisoJobs
from gpuwise.experiments.rows import Row
from gpuwise.predict.fitting.data.miso import GPU
from gpuwise.service.offline.simulate import Truth, simulate

NAME = "sharing"
SEEDS = range(200, 210)
"""Draws of the trace; none of them was looked at while the policies were made."""
REPARTITION_S = 10.0
"""Assumed; it is not stated how long it takes to cut a GPU."""
BELOW_EXCLUSIVE, BELOW_STATIC = 49.0, 16.0
WITHIN = 5.0
ALSO_POSSIBLE = "4g+3g"
"""A partition that the hardware allows and the authors leave out."""
SCRIPTED = "3g+2g+2g"
"""The static partition in the authors' published scripts."""


@dataclass(frozen=True)
class Rates:
    """Rates as some jobs have them declared, whatever is declared in a run."""

    jobs: Sequence[JobSpec]

    def __call__(self, table: JobTable, nodes: NodeTable) -> RateModel:
        """For the jobs and nodes of a run."""
        known = {job.id: job for job in self.jobs}
        own = JobTable()
        own.declare([known[name] for name in table.ids])
        return DeclaredRates(own, nodes)


def a100s(nodes: int, gpus: int) -> ClusterSpec:
    """Nodes of so many A100s each."""
    kind = gpu_type(GPU)
    assert kind.memory_bytes is not None
    node = NodeSpec(name="", gpu_type=kind.name, gpus=gpus, gpu_memory_bytes=float(kind.memory_bytes))
    return ClusterSpec(tuple(replace(node, name=f"n{number}") for number in range(nodes)))


def miso(data: Path, seeds: Sequence[int] = SEEDS) -> list[Row]:
    """Average JCT in several random draws of the trace, as the authors' scripts draw it, and as it is described."""
    trace = MisoJobs(data)
    partitions = _partitions(data)
    found = _drawn(trace, seeds, partitions, redraw=True)
    found += _drawn(trace, seeds, partitions, redraw=False)
    return found + _described(trace, partitions)


def _drawn(trace: MisoJobs, seeds: Sequence[int], partitions: Sequence[str], redraw: bool) -> list[Row]:
    """With jobs of other models in place of those without measured slices, or nothing."""
    drawn = [trace.drawn(seed, trace.measured, redraw) for seed in seeds]
    foreseen = [trace.drawn(seed, trace.predicted, redraw) for seed in seeds]
    jobs = f"MISO, {len(drawn[0])} jobs"
    odd = f"{trace.unmeasured} jobs have a model whose slices were not measured: "
    odd += "replaced by others at random" if redraw else "left out"
    found = _rows(jobs, drawn, foreseen, partitions, f"{odd}; mean of {len(drawn)} draws")
    if not redraw:
        return found
    known_s, foreseen_s = jct_s(drawn, "mig"), jct_s(foreseen, "mig", drawn)
    off = f"speeds by MigTime, fitted without the job's model, are {100 * trace.error():.0f} % off on average"
    share_s = jct_s(foreseen, "share", drawn)
    return [
        *found,
        Row(NAME, f"{jobs}: what errors of the forecasts add to mig's average JCT", "%", None,
            100 * (foreseen_s / known_s - 1), note=off),
        Row(NAME, f"{jobs}, share: average JCT", "s", None, share_s, note="nobody is suspended"),
    ]  # fmt: skip


def _described(trace: MisoJobs, partitions: Sequence[str]) -> list[Row]:
    """The trace as the data's description has it, rather than the scripts: longer jobs, at fixed times."""
    drawn, foreseen = [trace.described(trace.measured)], [trace.described(trace.predicted)]
    note = (
        "trace_100.json as times of submission and exp_100.json as run times; the scripts take the first as run times"
    )
    return _rows("MISO as described", drawn, foreseen, partitions, note)


def _rows(
    jobs: str, drawn: list[list[JobSpec]], foreseen: list[list[JobSpec]], partitions: Sequence[str], note: str
) -> list[Row]:
    """The average JCT of each way to share, and how far that of `mig` is below."""
    static = {layout: static_jct_s(drawn, layout) for layout in partitions}
    theirs = min((each for each in partitions if each != ALSO_POSSIBLE), key=static.__getitem__)
    best = min(partitions, key=static.__getitem__)
    exclusive_s, ours_s = jct_s(drawn, "fifo"), jct_s(foreseen, "mig", drawn)
    against = {
        "exclusive": (exclusive_s, BELOW_EXCLUSIVE, note),
        f"the best static of the authors' partitions, {theirs}": (static[theirs], BELOW_STATIC, note),
        f"{SCRIPTED}, static in the authors' scripts": (static[SCRIPTED], None, note),
    }
    if best != theirs:
        against[f"the best static partition there is, {best}"] = (static[best], BELOW_STATIC, note)
    costs = f"slices foreseen; saving and loading 30 s as in the authors' scripts, cutting {REPARTITION_S:g} s assumed"
    found = [
        Row(NAME, f"{jobs}, exclusive: average JCT", "s", None, exclusive_s, note=note),
        Row(NAME, f"{jobs}, mig: average JCT", "s", None, ours_s, note=costs),
    ]
    for what, (other_s, paper, told) in against.items():
        metric = f"{jobs}, mig: average JCT below {what}"
        found.append(Row(NAME, metric, "%", paper, 100 * (1 - ours_s / other_s), WITHIN, told))
    return found


def jct_s(drawn: Sequence[list[JobSpec]], policy: str, true: Sequence[list[JobSpec]] | None = None) -> float:
    """Average JCT, averaged over the draws; what is declared in ``true`` is true, else what is believed."""
    found = [
        simulate(jobs, a100s(4, 2), policy, truth=Truth(rates=Rates(real), repartition_s=REPARTITION_S))
        for jobs, real in zip(drawn, true or drawn, strict=True)
    ]
    return float(np.mean([result.metrics.avg_jct_s for result in found]))


def static_jct_s(drawn: Sequence[list[JobSpec]], layout: str) -> float:
    """Average JCT on a static partition; infinite where a job fits none of its slices."""
    try:
        return jct_s(drawn, f"mig-static?layout={layout}")
    except GpuwiseError:
        return math.inf


def _partitions(data: Path) -> list[str]:
    """The partitions that MISO chooses from, each once, as layouts such as 3g+2g+2g; and one more."""
    codes = json.loads((data / "miso" / "partition_code.json").read_text())
    sizes = {tuple(sorted(each, reverse=True)) for each in codes.values() if len(each) > 1}
    return [*("+".join(f"{size}g" for size in each) for each in sorted(sizes)), ALSO_POSSIBLE]
