"""Sharing as a decision: ITU's small, medium and large jobs on slices, and MISO's trace on eight A100s.

Tözün, "peaceful co-habitation on GPUs for deep learning" (2022), states what was seen; the figures are in pictures. The
paper on the same runs (Kaas, Paleykov, Robroek, Tözün, "Deep Learning Training on Multi-Instance GPUs", 2022) says "~3
times the throughput" for the small job and "marginal" for the others; its later version adds MPS: "up to four times".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuwise.core.units import GIB
from gpuwise.devices import mig_profiles
from gpuwise.experiments.itu_jobs import GPU, LARGE, MEDIUM, SMALL, ItuJob
from gpuwise.experiments.rows import Row
from gpuwise.experiments.sharing_miso import NAME, REPARTITION_S, Rates, a100s, miso
from gpuwise.service.offline.simulate import Truth, simulate

COPIES = 28
"""Jobs of one size that are run on one GPU: four rounds of seven slices."""


def rows(data: Path) -> list[Row]:
    """Every figure."""
    return [*itu(), *miso(data)]


def itu(jobs: Sequence[ItuJob] = (SMALL, MEDIUM, LARGE)) -> list[Row]:
    """What slices gain, as foreseen from the models alone; and as the policy makes of it when the authors are right."""
    found = []
    for job in jobs:
        many = f"{job.size}, {job.count} × {job.slice}"
        foreseen = job.count * job.believed[job.slice]
        said = "the authors say about 3" if job.gain > 1 else "the authors say marginal, taken as none"
        metric = f"{many}: throughput against one on the whole GPU, foreseen"
        found.append(Row(NAME, metric, "times", job.gain, foreseen, 0.25, f"{said}; ours from the model's graph alone"))
        found.append(_fit(job))
        for mode in ("time_slice", "mps"):
            metric = f"{job.size}, {job.count} in {mode}: throughput against one alone, foreseen"
            note = "no figure by mode; the later paper: up to 4 times with the best of all ways to share"
            found.append(Row(NAME, metric, "times", None, job.beside(mode, job.count), note=note))
        for policy in ("mig", "share"):
            metric = f"{job.size}, {COPIES} jobs under {policy}: makespan, one after the other against it"
            note = "belief as foreseen; truth as the authors state, by Amdahl's law on other slices"
            found.append(Row(NAME, metric, "times", job.gain, _gained(job, policy), 0.2, note))
    return found


def _fit(job: ItuJob) -> Row:
    """The smallest slice that holds a job."""
    smallest = next(each for each in mig_profiles(GPU) if each.memory_bytes >= job.memory_bytes)
    note = (
        f"{job.memory_bytes / GIB:.1f} GiB foreseen for PyTorch; the authors ran TensorFlow 2.7 and do not say how much"
    )
    said, ours = _gigabytes(job.slice), _gigabytes(smallest.name)
    return Row(NAME, f"{job.size}: smallest slice that holds it", "GB", said, ours, 0.0, note)


def _gigabytes(profile: str) -> float:
    """3g.20gb has 20."""
    return float(profile.partition(".")[2].removesuffix("gb"))


def _gained(job: ItuJob, policy: str) -> float:
    """How many times as long the jobs take one after the other as under the policy, on one GPU."""
    jobs, true = job.jobs(COPIES, job.believed), job.jobs(COPIES, job.true)
    memory = {each.id: job.memory_gib * GIB for each in jobs}
    truth = Truth(rates=Rates(true), gpu_memory_bytes=memory, repartition_s=REPARTITION_S)
    shared = simulate(jobs, a100s(1, 1), policy, truth=truth)
    alone = simulate(jobs, a100s(1, 1), "fifo", truth=truth)
    return alone.metrics.makespan_s / shared.metrics.makespan_s
