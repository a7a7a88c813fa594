"""ITU's small, medium and large training jobs on slices of an A100: what is published, and what gpuwise predicts.

Tözün, "peaceful co-habitation on GPUs for deep learning" (2022), states what was seen; the figures are in pictures. The
paper on the same runs (Kaas, Paleykov, Robroek, Tözün, "Deep Learning Training on Multi-Instance GPUs", 2022) says "~3
times the throughput" for the small job and "marginal" for the others; its later version adds MPS: "up to four times".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuwise.core.job.needs import COMPUTE_SLICES, Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB
from gpuwise.devices.catalogue import gpu_type
from gpuwise.devices.mig import mig_profile, mig_profiles
from gpuwise.experiments.rows import Row
from gpuwise.experiments.sharing.miso import NAME, REPARTITION_S, Rates, a100s
from gpuwise.predict import registry
from gpuwise.predict.base import Floats
from gpuwise.predict.sharing.mig import slice_fractions
from gpuwise.service.offline.forecast import Forecast
from gpuwise.service.offline.predict import predict
from gpuwise.service.offline.simulate import Truth, simulate

GPU = "A100"
BATCH = 32
PRECISION = "tf32"
"""The default of TensorFlow 2.7 on an A100."""
MODES = frozenset((Sharing.EXCLUSIVE, Sharing.MIG))
COPIES = 28
"""Jobs of one size that are run on one GPU: four rounds of seven slices."""


@dataclass(frozen=True)
class ItuJob:
    """One size of job: its model, and what the authors report of it on slices."""

    size: str
    model: str
    image: int
    slice: str
    """The smallest slice it fits, of which the GPU has ``count``."""
    count: int
    gain: float
    """How many times as much they do in parallel as one job on the whole GPU: about 3 for the small one, "marginal"
    for the others, which is taken as none."""
    memory_gib: float
    """It fits ``slice`` and no smaller one; the authors do not state it."""

    @cached_property
    def forecast(self) -> Forecast:
        """On the whole GPU."""
        return predict(self.model, batch=BATCH, gpus=[GPU], image=self.image, precision=PRECISION)

    @property
    def step_s(self) -> float:
        """Believed time of a step on the whole GPU."""
        return self.forecast.rows[0].step_time_s.value

    @property
    def used_frac(self) -> float:
        """Believed utilization of the whole GPU."""
        return self.forecast.rows[0].gpu_util_pct.value / 100

    @property
    def memory_bytes(self) -> float:
        """Believed memory."""
        return self.forecast.rows[0].memory_bytes.value

    @property
    def traffic_frac(self) -> float:
        """Believed share of the memory bandwidth: bytes that the operators move, over the step."""
        moved = sum(op.bytes for op in self.forecast.graph.ops)
        return min(1.0, moved / self.step_s / (gpu_type(GPU).memory_bandwidth_bytes_per_s or np.inf))

    @cached_property
    def believed(self) -> dict[str, float]:
        """Speed on each profile, relative to the whole GPU, by `MigTime`."""
        names = [profile.name for profile in mig_profiles(GPU)]
        table = {
            "step_time_s": np.full(len(names), self.step_s),
            "gpu_util_frac": np.full(len(names), self.used_frac),
            "mem_util_frac": np.full(len(names), self.traffic_frac),
            **slice_fractions(GPU, names),
        }
        times = registry.load("mig").predictor.estimate(table).value
        return dict(zip(names, (self.step_s / times).tolist(), strict=True))

    def beside(self, mode: str, count: int) -> float:
        """Believed speed of ``count`` of these jobs on one GPU together, by `Interference`."""
        table = {
            "group": np.zeros(count), "gpu": [GPU] * count, "mode": [mode] * count, "model": [self.model] * count,
            "batch_size": np.full(count, float(BATCH)), "step_time_s": np.full(count, self.step_s),
            "gpu_util_frac": np.full(count, self.used_frac), "mem_util_frac": np.full(count, self.traffic_frac),
        }  # fmt: skip
        found: Floats = registry.load("interference").predictor.estimate(table).value
        return float(found.sum())

    @property
    def true(self) -> dict[str, float]:
        """Speed on each profile as the authors' statement has it: t(c) = h + g/c for a part c of the compute slices.

        Amdahl's law through the two points that are stated: the whole GPU, and ``count`` slices that gain ``gain``.
        """
        part = mig_profile(GPU, self.slice).compute_slices / COMPUTE_SLICES
        grows = (self.count / self.gain - 1) / (1 / part - 1)
        parts = {each.name: each.compute_slices / COMPUTE_SLICES for each in mig_profiles(GPU)}
        return {name: 1 / (1 - grows + grows / part) for name, part in parts.items()}

    def jobs(self, count: int, speeds: dict[str, float], run_s: float = 3600.0) -> list[JobSpec]:
        """``count`` of these jobs at once, with these speeds on slices; they may use a whole GPU or a slice."""
        by_size = {f"{GPU}/{mig_profile(GPU, name).compute_slices}g": speed for name, speed in speeds.items()}
        return [
            JobSpec(id=f"{self.size}-{number}", duration_s=run_s, gpu_memory_bytes=self.memory_bytes, sharing=MODES,
                    speeds=tuple(by_size.items()))
            for number in range(count)
        ]  # fmt: skip


SMALL = ItuJob("small", "timm:resnet26", 32, "1g.5gb", 7, 3.0, 4.0)
MEDIUM = ItuJob("medium", "torchvision:resnet50", 64, "2g.10gb", 3, 1.0, 6.0)
LARGE = ItuJob("large", "torchvision:resnet152", 224, "2g.10gb", 3, 1.0, 9.0)


def rows(jobs: Sequence[ItuJob] = (SMALL, MEDIUM, LARGE)) -> list[Row]:
    """What slices gain, as predicted from the models alone, and under policies if the authors' figures are true."""
    found = []
    for job in jobs:
        many = f"{job.size}, {job.count} × {job.slice}"
        predicted = job.count * job.believed[job.slice]
        said = "the authors say about 3" if job.gain > 1 else "the authors say marginal, taken as none"
        metric = f"{many}: throughput against one on the whole GPU, predicted"
        found.append(
            Row(NAME, metric, "times", job.gain, predicted, 0.25, f"{said}; ours from the model's graph alone")
        )
        found.append(_fit(job))
        for mode in ("time_slice", "mps"):
            metric = f"{job.size}, {job.count} in {mode}: throughput against one alone, predicted"
            note = "no figure by mode; the later paper: up to 4 times with the best of all ways to share"
            found.append(Row(NAME, metric, "times", None, job.beside(mode, job.count), note=note))
        for policy in ("mig", "share"):
            metric = f"{job.size}, {COPIES} jobs under {policy}: makespan, one after the other against it"
            note = "belief as predicted; truth as the authors state, by Amdahl's law on other slices"
            found.append(Row(NAME, metric, "times", job.gain, _gained(job, policy), 0.2, note))
    return found


def _fit(job: ItuJob) -> Row:
    """The smallest slice on which a job fits."""
    smallest = next(each for each in mig_profiles(GPU) if each.memory_bytes >= job.memory_bytes)
    note = f"{job.memory_bytes / GIB:.1f} GiB predicted for PyTorch; the authors ran TensorFlow 2.7 and do not state it"
    said, ours = _gigabytes(job.slice), _gigabytes(smallest.name)
    return Row(NAME, f"{job.size}: smallest slice it fits on", "GB", said, ours, 0.0, note)


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
