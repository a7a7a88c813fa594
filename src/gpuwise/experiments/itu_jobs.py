"""The IT University of Copenhagen's small, medium and large training jobs: what is published, what gpuwise foresees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuwise.core.job.needs import COMPUTE_SLICES, Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.devices import gpu_type, mig_profile, mig_profiles
from gpuwise.predict import registry
from gpuwise.predict.base import Floats
from gpuwise.predict.sharing.mig import slice_fractions
from gpuwise.service.offline.forecast import Forecast
from gpuwise.service.offline.predict import predict

GPU = "A100"
BATCH = 32
PRECISION = "tf32"
"""What TensorFlow 2.7 computes in on an A100 if not told otherwise."""
MODES = frozenset((Sharing.EXCLUSIVE, Sharing.MIG))


@dataclass(frozen=True)
class ItuJob:
    """One size of job: its model, and what the authors say of it on slices."""

    size: str
    model: str
    image: int
    slice: str
    """The smallest slice it fits, of which the GPU holds ``count``."""
    count: int
    gain: float
    """How many times as much they do in parallel as one job on the whole GPU: about 3 for the small one, "marginal"
    for the others, which is taken as none."""
    memory_gib: float
    """Enough for ``slice`` and for no smaller one; the authors do not state it."""

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
        """Speed on each profile, relative to the whole GPU, as `MigTime` has it."""
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
        """Believed speed of so many of these jobs on one GPU together, as `Interference` has it."""
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
        """So many of these jobs at once, with these speeds on slices; they may have a whole GPU or a slice."""
        told = {f"{GPU}/{mig_profile(GPU, name).compute_slices}g": speed for name, speed in speeds.items()}
        return [
            JobSpec(id=f"{self.size}-{number}", duration_s=run_s, gpu_memory_bytes=self.memory_bytes, sharing=MODES,
                    speeds=tuple(told.items()))
            for number in range(count)
        ]  # fmt: skip


SMALL = ItuJob("small", "timm:resnet26", 32, "1g.5gb", 7, 3.0, 4.0)
MEDIUM = ItuJob("medium", "torchvision:resnet50", 64, "2g.10gb", 3, 1.0, 6.0)
LARGE = ItuJob("large", "torchvision:resnet152", 224, "2g.10gb", 3, 1.0, 9.0)
