"""One decision over a whole cluster: 4,000 waiting jobs of 100,000 tasks, 16,000 nodes."""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.events import JobSubmitted
from gpuwise.core.job.spec import JobSpec
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy


def one_decision(
    policy: str, cluster: str = "16000x8:V100", jobs: int = 4000, tasks: int = 100_000, seed: int = 0
) -> tuple[float, int]:
    """Seconds from the last submission to the checked and applied commands, and how many jobs were started."""
    rng = np.random.default_rng(seed)
    sizes = rng.geometric(jobs / tasks, jobs)
    specs = [
        JobSpec(
            id=str(i),
            duration_s=float(rng.lognormal(8, 2)) + 1,
            gpus=int(size),
            priority=int(rng.integers(5)),
            tenant=f"t{i % 20}",
        )
        for i, size in enumerate(sizes)
    ]
    engine = Engine(ClusterSpec.parse(cluster), make_policy(policy), placer=best_fit)
    rows = engine.state.jobs.declare(specs)
    started = perf_counter()
    commands = engine.step(0.0, [JobSubmitted(0.0, job) for job in rows])
    return perf_counter() - started, len(commands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default="fifo,fifo-backfill,sjf,srtf,srsf,las,edf,priority,drf")
    parser.add_argument("--cluster", default="16000x8:V100,16000x4:V100")
    args = parser.parse_args()
    for cluster in args.cluster.split(","):
        for policy in args.policies.split(","):
            took, started = one_decision(policy, cluster)
            print(f"{cluster:14} {policy:14} {took:7.3f} s  {started} of 4000 jobs started")


if __name__ == "__main__":
    main()
