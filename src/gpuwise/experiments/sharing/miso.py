"""MISO's trace on eight A100s: exclusive, the best static partition, and partitions that follow the jobs.

MISO (Li et al., SoCC'22): 49 % and 16 % lower average JCT than unpartitioned and than the best static partition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import RateModel
from gpuwise.core.rates import DeclaredRates
from gpuwise.devices.catalogue import gpu_type
from gpuwise.devices.mig import mig_profile, mig_profiles
from gpuwise.experiments.rows import Row
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data.miso import GPU, mig_times
from gpuwise.predict.sharing.mig import MigTime
from gpuwise.service.offline.simulate import Truth, simulate

NAME = "sharing"
SEEDS = range(200, 210)
"""Draws of the trace; none of them was used while the policies were developed."""
REPARTITION_S = 10.0
"""How long it takes to partition a GPU; assumed, since it is not stated."""
BELOW_EXCLUSIVE, BELOW_STATIC = 49.0, 16.0
WITHIN = 5.0
ALSO_POSSIBLE = "4g+3g"
"""A partition that the hardware allows and the authors leave out."""
SCRIPTED = "3g+2g+2g"
"""The static partition in the authors' published scripts."""
GAP_S, EARLY_GAP_S, EARLY_FRAC = 60, 30, 1 / 3
"""Mean time between jobs, as the published scripts have it by default: half of it for the first third of the jobs."""
SAVE_S = LOAD_S = 15.0
"""Checkpointing and resuming a job; together 30 s, the cost of a migration in the published scripts."""

Kind = tuple[str, int]
"""A model and its batch size."""
Speeds = dict[Kind, tuple[tuple[str, float], ...]]
"""How fast each kind of job is on slices, relative to the whole GPU."""


@dataclass(frozen=True)
class MisoJobs:
    """The jobs of MISO's trace, of which slices were measured."""

    data: Path

    @cached_property
    def _rows(self) -> dict[str, Any]:
        return mig_times(self.data)

    @cached_property
    def measured(self) -> Speeds:
        """As measured; 0 on slices that a job was not measured on, since it does not fit."""
        return self._speeds(self._rows["time_s"])

    @cached_property
    def predicted(self) -> Speeds:
        """By `MigTime`, fitted without the job's own model; which slices a job fits on is known."""
        rows, times = self._rows, np.empty(len(self._rows["time_s"]))
        for model in sorted(set(rows["model"])):
            out = rows["model"] == model
            seen = rows_where(rows, ~out)
            times[out] = MigTime().fit(seen, seen["time_s"]).estimate(rows_where(rows, out)).value
        return self._speeds(times)

    def error(self) -> float:
        """How far predicted speeds are off, on average, as a part of the measured ones."""
        pairs = [
            (dict(self.predicted[kind])[name], speed)
            for kind in self.trace_kinds
            for name, speed in self.measured[kind]
        ]
        return float(np.mean([abs(ours / theirs - 1) for ours, theirs in pairs if theirs]))

    @cached_property
    def trace(self) -> list[tuple[Kind, float]]:
        """The trace's jobs: kind and run time on a whole GPU."""
        models, times = self._read("job_models.json"), self._read("trace_100.json")
        return [(_kind(models[number]), float(times[number])) for number in models]

    def _read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "miso" / name).read_text())
        return found

    @cached_property
    def trace_kinds(self) -> list[Kind]:
        """The kinds of jobs in the trace that were measured."""
        return sorted({kind for kind, _ in self.trace if kind in self.measured})

    @property
    def unmeasured(self) -> int:
        """Jobs of the trace whose kind was not measured on slices."""
        return sum(kind not in self.measured for kind, _ in self.trace)

    def drawn(self, seed: int, speeds: Speeds, redraw: bool = True) -> list[JobSpec]:
        """The jobs in random order at random times, as the published scripts draw them.

        A job of a kind that was not measured becomes one of a measured kind, drawn at random as the kinds themselves
        were; or is left out without ``redraw``.
        """
        rng = np.random.default_rng(seed)
        jobs, at_s = [], 0.0
        for number, job in enumerate(rng.permutation(len(self.trace)).tolist()):
            at_s += float(rng.poisson(EARLY_GAP_S if number <= EARLY_FRAC * len(self.trace) else GAP_S))
            kind, run_s = self.trace[job]
            other = self.trace_kinds[rng.integers(len(self.trace_kinds))]
            if kind in self.measured or redraw:
                jobs.append(_job(job, kind if kind in self.measured else other, at_s, run_s, speeds))
        return jobs

    def described(self, speeds: Speeds) -> list[JobSpec]:
        """The jobs as the data are described: each with its own time of submission, and longer run times."""
        submitted, run = self._read("trace_100.json"), self._read("exp_100.json")
        jobs = [
            replace(job, submit_s=float(submitted[job.id]), duration_s=float(run[job.id]))
            for job in self.drawn(0, speeds)
        ]
        return sorted(jobs, key=lambda job: job.submit_s)

    def _speeds(self, times: Any) -> Speeds:
        rows = self._rows
        found: dict[Kind, dict[str, float]] = {}
        sizes = sorted({mig_profile(GPU, name).compute_slices for name in rows["profile"]})
        for model, batch, profile, whole_s, time_s in zip(
            rows["model"], rows["batch_size"], rows["profile"], rows["step_time_s"], times, strict=True
        ):
            nowhere = {f"{GPU}/{size}g": 0.0 for size in sizes}
            slices = found.setdefault((str(model), int(batch)), nowhere)
            slices[f"{GPU}/{mig_profile(GPU, str(profile)).compute_slices}g"] = float(whole_s / time_s)
        return {kind: tuple(slices.items()) for kind, slices in found.items()}


def _job(number: int, kind: Kind, at_s: float, run_s: float, speeds: Speeds) -> JobSpec:
    known = dict(speeds[kind])
    small = [each.memory_bytes for each in mig_profiles(GPU) if known.get(f"{GPU}/{each.compute_slices}g") == 0.0]
    return JobSpec(
        id=f"{number}", submit_s=at_s, duration_s=run_s, model=kind[0], batch_per_gpu=kind[1], speeds=speeds[kind],
        gpu_memory_bytes=min(small) + 1.0 if small else 0.0,
        suspend_s=SAVE_S, resume_s=LOAD_S, migrate_s=SAVE_S + LOAD_S,
    )  # fmt: skip


def _kind(name: str) -> Kind:
    """``resnet_train128`` is ResNet with a batch of 128."""
    model, _, batch = name.rpartition("_train")
    return model, int(batch)


# -- the experiment ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """The declared rates of some jobs, whatever is declared in a run."""

    jobs: Sequence[JobSpec]

    def __call__(self, table: JobTable, nodes: NodeTable) -> RateModel:
        """For the jobs and nodes of a run."""
        known = {job.id: job for job in self.jobs}
        own = JobTable()
        own.declare([known[name] for name in table.ids])
        return DeclaredRates(own, nodes)


def a100s(nodes: int, gpus: int) -> ClusterSpec:
    """Nodes of ``gpus`` A100s each."""
    kind = gpu_type(GPU)
    assert kind.memory_bytes is not None
    node = NodeSpec(name="", gpu_type=kind.name, gpus=gpus, gpu_memory_bytes=float(kind.memory_bytes))
    return ClusterSpec(tuple(replace(node, name=f"n{number}") for number in range(nodes)))


def rows(data: Path, seeds: Sequence[int] = SEEDS) -> list[Row]:
    """Average JCT in several random draws of the trace, as the authors' scripts draw it, and as it is described."""
    trace = MisoJobs(data)
    partitions = _partitions(data)
    found = _drawn(trace, seeds, partitions, redraw=True)
    found += _drawn(trace, seeds, partitions, redraw=False)
    return found + _described(trace, partitions)


def _drawn(trace: MisoJobs, seeds: Sequence[int], partitions: Sequence[str], redraw: bool) -> list[Row]:
    """With jobs of other models in place of those without measured slices, or without these."""
    drawn = [trace.drawn(seed, trace.measured, redraw) for seed in seeds]
    predicted = [trace.drawn(seed, trace.predicted, redraw) for seed in seeds]
    jobs = f"MISO, {len(drawn[0])} jobs"
    odd = f"{trace.unmeasured} jobs have a model whose slices were not measured: "
    odd += "replaced by others at random" if redraw else "left out"
    found = _rows(jobs, drawn, predicted, partitions, f"{odd}; mean of {len(drawn)} draws")
    if not redraw:
        return found
    known_s, predicted_s = jct_s(drawn, "mig"), jct_s(predicted, "mig", drawn)
    off = f"speeds by MigTime, fitted without the job's model, are {100 * trace.error():.0f} % off on average"
    share_s = jct_s(predicted, "share", drawn)
    return [
        *found,
        Row(NAME, f"{jobs}: what errors of the forecasts add to mig's average JCT", "%", None,
            100 * (predicted_s / known_s - 1), note=off),
        Row(NAME, f"{jobs}, share: average JCT", "s", None, share_s, note="no job is suspended"),
    ]  # fmt: skip


def _described(trace: MisoJobs, partitions: Sequence[str]) -> list[Row]:
    """The trace as the data are described, not as in the scripts: longer jobs, at fixed times."""
    drawn, predicted = [trace.described(trace.measured)], [trace.described(trace.predicted)]
    note = (
        "trace_100.json as times of submission and exp_100.json as run times; the scripts take the first as run times"
    )
    return _rows("MISO as described", drawn, predicted, partitions, note)


def _rows(
    jobs: str, drawn: list[list[JobSpec]], predicted: list[list[JobSpec]], partitions: Sequence[str], note: str
) -> list[Row]:
    """The average JCT of each way to share, and how far that of `mig` is below."""
    static = {layout: static_jct_s(drawn, layout) for layout in partitions}
    theirs = min((each for each in partitions if each != ALSO_POSSIBLE), key=static.__getitem__)
    best = min(partitions, key=static.__getitem__)
    exclusive_s, ours_s = jct_s(drawn, "fifo"), jct_s(predicted, "mig", drawn)
    against = {
        "exclusive": (exclusive_s, BELOW_EXCLUSIVE, note),
        f"the best static of the authors' partitions, {theirs}": (static[theirs], BELOW_STATIC, note),
        f"{SCRIPTED}, static in the authors' scripts": (static[SCRIPTED], None, note),
    }
    if best != theirs:
        against[f"the best static partition there is, {best}"] = (static[best], BELOW_STATIC, note)
    costs = f"slices predicted; 30 s to migrate as in the authors' scripts, {REPARTITION_S:g} s to partition assumed"
    found = [
        Row(NAME, f"{jobs}, exclusive: average JCT", "s", None, exclusive_s, note=note),
        Row(NAME, f"{jobs}, mig: average JCT", "s", None, ours_s, note=costs),
    ]
    for what, (other_s, paper, about) in against.items():
        metric = f"{jobs}, mig: average JCT below {what}"
        found.append(Row(NAME, metric, "%", paper, 100 * (1 - ours_s / other_s), WITHIN, about))
    return found


def jct_s(drawn: Sequence[list[JobSpec]], policy: str, true: Sequence[list[JobSpec]] | None = None) -> float:
    """Average JCT, averaged over the draws; the speeds declared in ``true`` are true, else those believed."""
    found = [
        simulate(jobs, a100s(4, 2), policy, truth=Truth(rates=Rates(real), repartition_s=REPARTITION_S))
        for jobs, real in zip(drawn, true or drawn, strict=True)
    ]
    return float(np.mean([result.metrics.avg_jct_s for result in found]))


def static_jct_s(drawn: Sequence[list[JobSpec]], layout: str) -> float:
    """Average JCT on a static partition; infinite where a job fits on none of its slices."""
    try:
        return jct_s(drawn, f"mig-static?layout={layout}")
    except GpuwiseError:
        return math.inf


def _partitions(data: Path) -> list[str]:
    """The partitions that MISO chooses from, each once, as layouts such as 3g+2g+2g; and one more."""
    codes = json.loads((data / "miso" / "partition_code.json").read_text())
    sizes = {tuple(sorted(each, reverse=True)) for each in codes.values() if len(each) > 1}
    return [*("+".join(f"{size}g" for size in each) for each in sorted(sizes)), ALSO_POSSIBLE]
