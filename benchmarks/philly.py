"""How fast a trace is replayed: Philly's 82,247 jobs on 312 nodes × 8 GPUs, and four times as many at the same load."""

from __future__ import annotations

import argparse
import resource
from time import perf_counter

from gpuwise.core.errors import GpuwiseError
from gpuwise.service.offline.catalogue import data_dir
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.traces.files import read_trace
from gpuwise.sim.traces.trace import Trace, prolong

CLUSTER = "312x8:V100"


def philly() -> Trace:
    try:
        return read_trace(data_dir() / "pollux" / "traces" / "philly.csv")
    except GpuwiseError:
        return read_trace("gen:philly?jobs=82247&load=0.15&gpus=2496&seed=0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default="fifo,sjf,srtf,las")
    parser.add_argument("--cluster", default=CLUSTER)
    parser.add_argument("--times", type=int, nargs="*", default=[1, 4])
    args = parser.parse_args()
    started = perf_counter()
    trace = philly()
    print(f"read {len(trace):,} jobs in {perf_counter() - started:.2f} s")
    for policy in args.policies.split(","):
        took = []
        for times in args.times:
            result = simulate(trace if times == 1 else prolong(trace, times), args.cluster, policy, oversized="drop")
            took.append(result.wall_s)
            rate = result.metrics.jobs / result.wall_s
            metrics = result.metrics
            print(f"{policy:14} {metrics.jobs:>8,} jobs {result.wall_s:7.2f} s  {rate:>8,.0f} jobs/s", end="  ")
            print(f"average JCT {metrics.avg_jct_s:,.0f} s")
        if len(took) == 2:
            print(f"{'':14} {args.times[1]} times the jobs took {took[1] / took[0]:.2f} times as long")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
