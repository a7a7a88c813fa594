"""Jobs as the co-location paper describes them, and how they slow each other down on a GPU.

Yeung et al., Towards GPU Utilization Prediction for Cloud Deep Learning, HotCloud'20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.units import GIB, WHOLE_GPU_MILLI
from gpuwise.predict.sharing.interference import Interference
from gpuwise.sim.executor.failures import OUT_OF_MEMORY_S

GPU, GPUS, GPU_BYTES = "RTX2080", 12, 8 * GIB
SHORTEST_S, LONGEST_S = 120.0, 7200.0
LEAST_UTIL, MOST_UTIL = 0.2, 0.9
RMSLE = 0.154
"""Error of the paper's utilization predictor."""
MEMORY_ERROR = 0.13
"""Log-normal error with gpuwise's mean error of a memory forecast, 10 %; the paper says nothing of one."""
LEAST_SLOWDOWN, MOST_SLOWDOWN = 0.1, 2.0
"""Slowdown of co-located jobs, the paper's figure 5a; it grows with the utilizations added up."""
SENSITIVITY = 0.25
"""How much slowdowns differ between models (log-normal); the figure is a cloud, its width is assumed."""
MEASURED = 0.05
"""Error of a measured slowdown."""

VISION, LANGUAGE = (64, 128, 256, 512), (16, 32, 64)
"""Batch sizes."""
MODELS: Mapping[str, tuple[float, float, float]] = {
    # GFLOP of a training step for each sample, memory in GiB with the least and with the largest batch: by gpuwise's
    # graphs, images of 32×32 (all batches up to 512 have to fit 8 GiB), sentences of 200 tokens and 10,000 words.
    "MobileNetV2": (0.046, 1.49, 2.31), "ResNet-18": (0.221, 1.50, 1.77), "ResNet-34": (0.448, 1.61, 1.98),
    "ResNet-50": (0.512, 1.72, 2.63), "GoogLeNet": (0.186, 1.48, 2.01), "VGG-19": (3.13, 3.31, 4.44),
    "ResNeXt-50": (0.530, 1.74, 2.89), "SqueezeNet": (0.053, 1.38, 1.64), "DenseNet-121": (0.353, 1.60, 2.94),
    "DenseNet-161": (0.962, 1.97, 4.44), "DenseNet-169": (0.423, 1.70, 3.31), "ShuffleNetV2-0.5": (0.011, 1.36, 1.49),
    "ShuffleNetV2-1.0": (0.024, 1.39, 1.60), "ShuffleNetV2-2.0": (0.084, 1.47, 1.86),
    "MNASNet-0.5": (0.021, 1.39, 1.66), "MNASNet-1.0": (0.047, 1.44, 1.91),
    "MNASNet-1.3": (0.074, 1.48, 2.11), "PyramidNet-48": (1.04, 2.49, 10.50),
    "PyramidNet-84": (1.78, 3.29, 16.84), "LSTM": (11.2, 1.74, 2.48), "GRU": (9.95, 1.73, 2.47),
    "BiLSTM": (24.9, 1.99, 3.09), "Transformer": (22.4, 2.20, 4.10),
}  # fmt: skip
_LANGUAGE_MODELS = frozenset(("LSTM", "GRU", "BiLSTM", "Transformer"))


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with a batch size: what it really takes of a GPU when alone."""

    model: str
    batch: int
    gpu_util_frac: float
    memory_bytes: float


def workloads(times_memory: float = 1.0) -> list[Workload]:
    """Every model with every batch size that fits the GPU, utilization growing with the work of a step.

    The paper: utilizations are 20 to 90 %, and higher for models with more FLOPs. So they are spread evenly over that
    range in the order of a step's FLOPs.
    """
    found = []
    for model, (gflop, least, most) in MODELS.items():
        batches = LANGUAGE if model in _LANGUAGE_MODELS else VISION
        for batch in batches:
            part = (batch - batches[0]) / (batches[-1] - batches[0])
            found.append(
                (gflop * batch, Workload(model, batch, math.nan, times_memory * (least + part * (most - least)) * GIB))
            )
    fitting = [each for _, each in sorted(found, key=lambda each: each[0]) if each.memory_bytes <= 0.9 * GPU_BYTES]
    spread = np.linspace(LEAST_UTIL, MOST_UTIL, len(fitting)).tolist()
    return [replace(each, gpu_util_frac=util) for each, util in zip(fitting, spread, strict=True)]


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of what is believed of jobs: standard deviations of log-normal errors."""

    utilization: float = RMSLE
    memory: float = MEMORY_ERROR
    times_memory: float = 1.0
    """A factor on the memory of all jobs, to see the effect of its errors where there is little."""


@dataclass(frozen=True)
class Run:
    """One run of the experiment: its jobs, and what is true of them."""

    jobs: list[JobSpec]
    """As they are submitted: with what is predicted of them."""
    utilization: Mapping[str, float]
    """The true one, by job."""
    memory_bytes: Mapping[str, float]
    sensitivity: Mapping[str, float]
    """By model."""

    def profiled(self) -> list[JobSpec]:
        """The jobs for a policy without predictions: with unknown utilization and true memory."""
        return [replace(job, gpu_util_frac=math.nan, gpu_memory_bytes=self.memory_bytes[job.id]) for job in self.jobs]


def draw(seed: int, count: int = 100, arrivals_s: float = 0.0, errors: Errors = Errors()) -> Run:
    """Draws a run: workloads at random, run times log-uniform, submitted at once, or over some time."""
    jobs_rng, time_rng, model_rng, error_rng = (np.random.default_rng([seed, part]) for part in range(4))
    known = workloads(errors.times_memory)
    chosen = jobs_rng.integers(len(known), size=count)
    duration_s = np.exp(jobs_rng.uniform(math.log(SHORTEST_S), math.log(LONGEST_S), count))
    submit_s = np.sort(time_rng.uniform(0.0, arrivals_s, count))
    sensitivity = dict(zip(MODELS, np.exp(model_rng.normal(0.0, SENSITIVITY, len(MODELS))).tolist(), strict=True))
    # The same workload is always predicted the same: errors belong to it, not to the job.
    util_error = np.exp(errors.utilization * error_rng.normal(0.0, 1.0, len(known)))
    memory_error = np.exp(errors.memory * error_rng.normal(0.0, 1.0, len(known)))
    jobs = [
        JobSpec(
            id=f"j{number}", submit_s=float(submit_s[number]), duration_s=float(duration_s[number]),
            model=known[at].model, batch_per_gpu=known[at].batch, migrate_s=OUT_OF_MEMORY_S,
            gpu_util_frac=min(1.0, known[at].gpu_util_frac * float(util_error[at])),
            gpu_memory_bytes=min(GPU_BYTES, known[at].memory_bytes * float(memory_error[at])),
        )
        for number, at in enumerate(chosen.tolist())
    ]  # fmt: skip
    true = {job.id: known[at] for job, at in zip(jobs, chosen.tolist(), strict=True)}
    return Run(
        jobs,
        {name: each.gpu_util_frac for name, each in true.items()},
        {name: each.memory_bytes for name, each in true.items()},
        sensitivity,
    )


def cluster() -> ClusterSpec:
    """The paper's twelve GPUs."""
    return ClusterSpec(
        tuple(NodeSpec(name=f"n{i}", gpu_type=GPU, gpus=1, gpu_memory_bytes=GPU_BYTES) for i in range(GPUS))
    )


Curve = Callable[[float], float]
"""The mean slowdown of jobs by the sum of their utilizations: 0.1 is a tenth longer."""


def even_growth(load: float) -> float:
    """Growing by the same factor with each step of load."""
    factor: float = (MOST_SLOWDOWN / LEAST_SLOWDOWN) ** _between(load, 2 * LEAST_UTIL)
    return LEAST_SLOWDOWN * factor


def straight(load: float) -> float:
    """On a straight line."""
    return LEAST_SLOWDOWN + (MOST_SLOWDOWN - LEAST_SLOWDOWN) * _between(load, 2 * LEAST_UTIL)


def knee(load: float) -> float:
    """The least up to a whole GPU, and from there on a straight line."""
    return LEAST_SLOWDOWN + (MOST_SLOWDOWN - LEAST_SLOWDOWN) * _between(load, 1.0)


def _between(load: float, low: float) -> float:
    """A load as a part of the range from ``low``, where a curve begins, to the most that two jobs can make."""
    return min(max((load - low) / (2 * MOST_UTIL - low), 0.0), 1.0)


class TrueRates:
    """The true rates: jobs on a GPU slow each other by the sum of their true utilizations."""

    def __init__(self, jobs: JobTable, nodes: NodeTable, run: Run, curve: Curve = even_growth) -> None:
        self._alone = DeclaredRates(jobs, nodes)
        self._jobs = jobs
        self._run = run
        self._curve = curve

    def rates(
        self, jobs: Sequence[int], placements: Sequence[Placement], residents: Sequence[Sequence[int]]
    ) -> list[float]:
        """Steps per second of each job."""
        whole = [each._replace(sharing=Sharing.EXCLUSIVE, milli=WHOLE_GPU_MILLI) for each in placements]
        alone = self._alone.rates(jobs, whole, [()] * len(jobs))
        return [rate / self._stretch(job, here) for rate, job, here in zip(alone, jobs, residents, strict=True)]

    def _stretch(self, job: int, others: Sequence[int]) -> float:
        if not others:
            return 1.0
        ids, table = self._jobs.ids, self._jobs
        load = sum(self._run.utilization[ids[each]] for each in (job, *others))
        model = table.models[table.model.item(job)]
        return 1.0 + self._curve(load) * self._run.sensitivity[model]


def measured_pairs(run: Run, seed: int, curve: Curve = even_growth) -> Interference:
    """An interference predictor fitted to what the paper measured first: all pairs of models, once each."""
    rng = np.random.default_rng([5, seed])
    first = {each.model: each for each in reversed(workloads())}  # each with its least batch
    models = sorted(first)
    rows: list[tuple[str, Workload, float]] = []
    for number, one in enumerate(models):
        for other in models[number + 1 :]:
            pair = (first[one], first[other])
            mean = curve(sum(each.gpu_util_frac for each in pair))
            for each in pair:
                took = (1.0 + mean * run.sensitivity[each.model]) * math.exp(rng.normal(0.0, MEASURED))
                rows.append((f"{one} {other}", each, min(1.0, 1.0 / took)))
    columns = {
        "group": [group for group, _, _ in rows],
        "gpu": [GPU] * len(rows),
        "model": [each.model for _, each, _ in rows],
        "batch_size": [each.batch for _, each, _ in rows],
        "gpu_util_frac": [each.gpu_util_frac for _, each, _ in rows],
    }
    return Interference().fit(columns, [speed for _, _, speed in rows])
