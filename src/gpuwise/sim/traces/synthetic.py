"""Workload generators: traces made from stated distributions, the same for the same seed."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.schema import Values, complete
from gpuwise.sim.traces.trace import Trace

HOUR_S = 3600.0

# The Milan instances. Application, inputs, epochs and batch size are those of Ardagna's table of jobs (JJ1 to JJ6).
# Inputs per second on one K80 are not stated there: ResNet-50 51.2 and AlexNet 639 are TensorFlow's published
# benchmarks (real data, May 2017), VGG-19 is its VGG-16 (34.2) × 15.5 / 19.6 GMACs, and DeepSpeech is assumed at one
# step per second.
MILAN_JOBS = (
    ("deepspeech", 64, 158, 4, 4.0),
    ("vgg19", 130_000, 1, 32, 27.0),
    ("vgg19", 130_000, 1, 32, 27.0),
    ("alexnet", 130_000, 12, 256, 639.0),
    ("resnet50", 130_000, 3, 64, 51.2),
    ("resnet50", 130_000, 3, 64, 51.2),
)
MILAN_JOBS_PER_NODE = 10
MILAN_MAX_GPUS = 4  # the largest of the cloud VMs in that table
MILAN_SLACK = (1.5, 5.0)

# Gavel's job types (simulation_throughputs.json): batch sizes by model, and whether it runs on several GPUs.
GAVEL_MODELS = {
    "ResNet-18": ((16, 32, 64, 128, 256), True),
    "ResNet-50": ((16, 32, 64, 128), True),
    "Transformer": ((16, 32, 64, 128, 256), True),
    "LM": ((5, 10, 20, 40, 80), True),
    "Recommendation": ((512, 1024, 2048, 4096, 8192), False),
    "A3C": ((0,), False),
    "CycleGAN": ((0,), False),
}
GAVEL_SIZES = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}

# Philly, from the 82,247 jobs of Pollux' philly.csv: jobs by number of GPUs, quantiles of their durations in seconds,
# jobs by hour of the day, and a mean of 114.4 s between submissions (9,408,690 s in all).
PHILLY_SIZES = {1: 76627, 2: 1818, 4: 1870, 8: 1643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3}
PHILLY_SHARES = (0, 0.05, 0.10, 0.25, 0.50, 0.75, 0.85, 0.90, 0.95, 0.975, 0.99, 0.995, 0.999, 1)
PHILLY_QUANTILES_S = {  # by the smallest number of GPUs they apply to
    1: (1, 52, 62, 122, 1117, 2716, 5342, 8512, 19137, 55518, 135399, 266914, 865709, 3256045),
    2: (2, 9, 11, 16, 21, 76, 22255, 72740, 197062, 288912, 523316, 808064, 1474215, 2582803),
    4: (3, 75, 138, 773, 17410, 89394, 151448, 184435, 273968, 499351, 907376, 1205990, 2446301, 2750674),
    8: (1, 125, 216, 1876, 23683, 173248, 242252, 351982, 525618, 743403, 1060498, 2000448, 2656479, 4628226),
    12: (1, 35, 72, 566, 21137, 104218, 181582, 247972, 443240, 532107, 922629, 1274181, 1612502, 1710643),
}
PHILLY_JOBS_BY_HOUR = (
    *(4367, 3374, 3835, 3780, 2400, 3950, 5732, 7159, 3802, 3447, 3510, 2979),
    *(2567, 2415, 2185, 2224, 3021, 2289, 2744, 2496, 3483, 3142, 3885, 3461),
)
PHILLY_INTERARRIVAL_S = 114.4
# How Philly's jobs end: AcmeTrace's summary of 112,956 of them.
PHILLY_OUTCOMES = {"succeeded": 0.605, "cancelled": 0.090, "failed": 0.305}


def milan(nodes: int, mean_interarrival_s: float = 30.0, seed: int = 0) -> Trace:
    """Ardagna's instances: ten jobs per node, Poisson arrivals 30 s or 45 s apart in the mean, six kinds of job.

    Stated there: arrivals, jobs per node, the kinds of job. Assumed here: kinds are equally likely; duration is that
    on one K80 (see ``MILAN_JOBS``); jobs take 1 to 4 GPUs; a deadline 1.5 to 5 times the duration after submission;
    tardiness weights, as priority, from 1 to 5; the last two uniform.
    """
    _require_positive(nodes=nodes, mean_interarrival_s=mean_interarrival_s)
    rng = np.random.default_rng(seed)
    jobs = nodes * MILAN_JOBS_PER_NODE
    submit_s = poisson_arrivals_s(rng, jobs, mean_interarrival_s)
    kind = rng.integers(len(MILAN_JOBS), size=jobs)
    name, inputs, epochs, batch, inputs_per_s = (np.array(column)[kind] for column in zip(*MILAN_JOBS, strict=True))
    duration_s = inputs * epochs / inputs_per_s
    ones = np.ones(jobs, dtype=np.int64)
    return _trace(
        f"milan-{nodes}-{mean_interarrival_s:g}s-{seed}",
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=ones,
        max_gpus=ones * MILAN_MAX_GPUS,
        priority=rng.integers(1, 6, size=jobs),
        deadline_s=submit_s + duration_s * rng.uniform(*MILAN_SLACK, size=jobs),
        steps=np.ceil(inputs / batch) * epochs,
        model=pl.Series(name.tolist(), dtype=pl.String),
        batch_per_gpu=batch,
    )


def gavel(jobs: int, jobs_per_hour: float, seed: int = 0) -> Trace:
    """Gavel's continuous workload: Poisson arrivals, durations over three decades, gangs of 1 to 8 GPUs.

    Four in five durations are 10^U(1.5, 3) minutes, the others 10^U(3, 4); 70, 10, 15 and 5 % of jobs take 1, 2, 4
    and 8 GPUs. Job types are equally likely among those that run on that many GPUs. The duration is that of the gang
    alone.
    """
    _require_positive(jobs=jobs, jobs_per_hour=jobs_per_hour)
    rng = np.random.default_rng(seed)
    submit_s = poisson_arrivals_s(rng, jobs, HOUR_S / jobs_per_hour)
    gpus = rng.choice(list(GAVEL_SIZES), size=jobs, p=list(GAVEL_SIZES.values()))
    long = rng.random(jobs) >= 0.8
    exponent = np.where(long, rng.uniform(3, 4, size=jobs), rng.uniform(1.5, 3, size=jobs))
    types = [(model, batch, many) for model, (batches, many) in GAVEL_MODELS.items() for batch in batches]
    types.sort(key=lambda job_type: not job_type[2])
    distributed = sum(many for _, _, many in types)
    chosen = (rng.random(jobs) * np.where(gpus > 1, distributed, len(types))).astype(np.int64)
    return _trace(
        f"gavel-{jobs}-{jobs_per_hour:g}-{seed}",
        submit_s=submit_s,
        duration_s=60 * 10**exponent,
        gpus=gpus,
        model=pl.Series([types[index][0] for index in chosen.tolist()], dtype=pl.String),
        batch_per_gpu=np.array([batch for _, batch, _ in types])[chosen],
    )


def philly_like(jobs: int, seed: int = 0, load: float | None = None, gpus: int | None = None) -> Trace:
    """Jobs as Philly's were: mostly one GPU, heavy-tailed durations, a daily rhythm and many failures.

    Durations are drawn from the quantiles of Philly's jobs of that size, straight lines in the logarithm between
    them. With ``load`` and ``gpus`` the jobs are spread over the time in which that many GPUs, all busy for that
    share of it, could do their work; without, they are 114.4 s apart in the mean. Time 0 is midnight.
    """
    if (load is None) != (gpus is None):
        raise TraceError("load and gpus belong together: the share of how many GPUs the jobs should keep busy")
    _require_positive(jobs=jobs, load=1 if load is None else load, gpus=1 if gpus is None else gpus)
    rng = np.random.default_rng(seed)
    counts = np.array(list(PHILLY_SIZES.values()))
    sizes = rng.choice(list(PHILLY_SIZES), size=jobs, p=counts / counts.sum())
    duration_s = np.empty(jobs)
    for smallest, quantiles_s in PHILLY_QUANTILES_S.items():
        group = sizes >= smallest
        duration_s[group] = np.exp(np.interp(rng.random(group.sum()), PHILLY_SHARES, np.log(quantiles_s)))
    span_s = jobs * PHILLY_INTERARRIVAL_S
    if load is not None and gpus is not None:
        span_s = float((sizes * duration_s).sum()) / (load * gpus)
    return _trace(
        f"philly-like-{jobs}-{seed}",
        submit_s=daily_arrivals_s(rng, jobs, span_s),
        duration_s=duration_s,
        gpus=sizes,
        outcome=pl.Series(rng.choice(list(PHILLY_OUTCOMES), size=jobs, p=list(PHILLY_OUTCOMES.values())).tolist()),
    )


def poisson_arrivals_s(rng: np.random.Generator, jobs: int, mean_interarrival_s: float) -> NDArray[np.float64]:
    """Submission times of a Poisson process, the first at 0."""
    gaps_s = rng.exponential(mean_interarrival_s, size=jobs)
    gaps_s[0] = 0.0
    return np.cumsum(gaps_s)


def daily_arrivals_s(rng: np.random.Generator, jobs: int, span_s: float) -> NDArray[np.float64]:
    """Submission times within a span that follow Philly's hours of the day.

    Arrivals of a Poisson process, given their number, are independent draws from its rate: the cumulative rate is
    inverted.
    """
    hours = np.arange(int(np.ceil(span_s / HOUR_S)) + 1)
    edges_s = np.minimum(hours * HOUR_S, span_s)
    weight = np.array(PHILLY_JOBS_BY_HOUR)[hours[:-1] % 24] * np.diff(edges_s)
    cumulative = np.concatenate([[0.0], np.cumsum(weight)])
    return np.sort(np.interp(rng.random(jobs) * cumulative[-1], cumulative, edges_s))


def _require_positive(**parameters: float) -> None:
    for name, value in parameters.items():
        if not 0 < value < np.inf:
            raise TraceError(f"{name}: {value!r} is not a number above 0")


def _trace(name: str, **columns: Values) -> Trace:
    return Trace(complete(columns), name, "generated")
