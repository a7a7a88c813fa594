"""How long policies that share GPUs take to decide: 2,000 jobs of many kinds on 200 GPUs, submitted in two hours."""

from __future__ import annotations

import argparse
from functools import partial
from time import perf_counter

import numpy as np

from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB
from gpuwise.predict.rates import InterferenceRates
from gpuwise.service.offline.simulate import simulate

POLICIES = {
    "proactive": "25x8:V100", "reactive": "25x8:V100", "pack": "25x8:V100", "gain": "12x8:P100+13x8:V100",
    "share": "25x8:A100", "mig": "25x8:A100", "mig-static": "25x8:A100",
}  # fmt: skip


def workload(jobs: int, seed: int = 0) -> list[JobSpec]:
    """Jobs of twenty kinds, from minutes to hours."""
    rng = np.random.default_rng(seed)
    return [
        JobSpec(
            id=str(number),
            submit_s=float(rng.uniform(0, 7200)),
            duration_s=float(rng.lognormal(7.5, 1.0)) + 60,
            gpu_util_frac=0.2 + 0.035 * (kind := int(rng.integers(20))),
            gpu_memory_bytes=(1 + 0.4 * kind) * GIB,
            model=f"model {kind}",
            batch_per_gpu=32,
            speeds=(("V100", 1 + 0.03 * kind), ("P100", 1.0), ("A100", 2.0), ("A100/1g", 1.2 - 0.05 * kind)),
        )
        for number in range(jobs)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--jobs", type=int, default=2000)
    args = parser.parse_args()
    jobs = workload(args.jobs)
    for policy in args.policies.split(","):
        started = perf_counter()
        result = simulate(jobs, POLICIES[policy], policy, beliefs=partial(InterferenceRates, coverage=0.5))
        middle, late, most = np.quantile(result.engine.decide_s, [0.5, 0.99, 1.0]) * 1e3
        print(
            f"{policy:11} {len(result.engine.decide_s):6,} decisions: median {middle:6.2f} ms, 99th percentile "
            f"{late:6.1f} ms, longest {most:6.0f} ms; {perf_counter() - started:5.1f} s in all"
        )


if __name__ == "__main__":
    main()
