"""Compares policies on one trace: python examples/compare_policies.py [TRACE [CLUSTER]]."""

from __future__ import annotations

import sys

import gpuwise
from gpuwise.core.units import format_duration

POLICIES = ("fifo", "fifo-backfill", "sjf", "srtf", "las")


def main(trace: str = "gen:gavel?jobs=500&rate=1.2&seed=1", cluster: str = "4x8:V100") -> None:
    jobs = gpuwise.read_trace(trace)
    print(jobs.summary())
    print(f"\n{'policy':<15}{'average JCT':>12}{'p99 JCT':>10}{'queue':>10}{'GPUs in use':>13}{'preemptions':>13}")
    for policy in POLICIES:
        found = gpuwise.simulate(jobs, cluster, policy).metrics
        print(
            f"{policy:<15}{format_duration(found.avg_jct_s):>12}{format_duration(found.p99_jct_s):>10}"
            f"{format_duration(found.avg_queue_s):>10}{found.gpu_util_frac:>13.1%}{found.preemptions:>13}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
