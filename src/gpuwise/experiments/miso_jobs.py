"""MISO's jobs (Li et al., SoCC'22): their trace, and their speeds on MIG slices as measured and as predicted."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.core.spec import JobSpec
from gpuwise.devices import mig_profile, mig_profiles
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data.miso import GPU, mig_times
from gpuwise.predict.sharing.mig import MigTime

GAP_S, EARLY_GAP_S, EARLY_FRAC = 60, 30, 1 / 3
"""Mean time between jobs, as the published scripts have it by default: half of it for the first third of the jobs."""
SAVE_S = LOAD_S = 15.0
"""Saving and loading a job; together 30 s, what the published scripts take a migration to cost."""

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
        """As `MigTime` has it, fitted without the model that is asked for; which slices hold a job is known."""
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
        """The jobs as the data's description has them: each with its own time of submission, and longer run times."""
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
    told = dict(speeds[kind])
    small = [each.memory_bytes for each in mig_profiles(GPU) if told.get(f"{GPU}/{each.compute_slices}g") == 0.0]
    return JobSpec(
        id=f"{number}", submit_s=at_s, duration_s=run_s, model=kind[0], batch_per_gpu=kind[1], speeds=speeds[kind],
        gpu_memory_bytes=min(small) + 1.0 if small else 0.0,
        suspend_s=SAVE_S, resume_s=LOAD_S, migrate_s=SAVE_S + LOAD_S,
    )  # fmt: skip


def _kind(name: str) -> Kind:
    """``resnet_train128`` is ResNet with a batch of 128."""
    model, _, batch = name.rpartition("_train")
    return model, int(batch)
