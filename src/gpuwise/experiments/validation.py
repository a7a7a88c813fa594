"""Is the simulator right? Other simulators' results and a testbed's measurements, on the same traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gpuwise.experiments import fragmentation
from gpuwise.experiments.rows import Row
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.traces import read_trace

NAME = "validation"

PEERS = (
    # jobs, placement, whose, published average JCT
    (1000, "first-fit", "Tiresias' simulator", 12172.0),
    (1000, "best-fit", "Lucid's simulator", 12171.0),
    (2000, "first-fit", "Tiresias' simulator", 14504.0),
    (2000, "best-fit", "Lucid's simulator", 14660.0),
)

MURI_POLICIES = {"SRTF": ("srtf?repack=true", 0.05), "SRSF": ("srsf?repack=true", 0.05), "Tiresias_L": ("las", 0.10)}
TESTBED_AVG_JCT_S = {"SRTF": 249140.0, "SRSF": 238612.0, "Tiresias_L": 336533.0}


def rows(data: Path) -> list[Row]:
    """Every check."""
    return [*peers(data), *muri_simulated(data), *muri_measured(data), *fragmentation.rows(data)]


def peers(data: Path) -> list[Row]:
    """Strict FIFO on samples of Philly, 32 nodes × 8 GPUs, against other simulators."""
    found = []
    for count, placement, whose, published in PEERS:
        result = simulate(data / "peers" / f"philly32x8_{count}.csv", "32x8:V100", "fifo", placement=placement)
        metric = f"Philly {count} jobs, FIFO, {placement}: average JCT"
        found.append(Row(NAME, metric, "s", published, result.metrics.avg_jct_s, 0.01, whose))
    return found


def muri_simulated(data: Path, traces: Sequence[str] = ("trace1", "trace2")) -> list[Row]:
    """Muri's traces on 8 nodes × 8 V100 against the simulated figures of their paper."""
    published = pl.read_csv(data / "muri" / "published_simulation_results_fig9_fig10.csv")
    found = []
    for name in traces:
        trace = read_trace(data / "muri" / "simulator" / "trace-data" / f"{name}.csv")
        for theirs, (policy, within) in MURI_POLICIES.items():
            row = published.filter(policy=theirs, metric="JCT", trace=name)
            result = simulate(trace, "8x8:V100", policy)
            metric = f"Muri {name}, {policy}: average JCT"
            found.append(
                Row(NAME, metric, "s", row["value_seconds"][0], result.metrics.avg_jct_s, within, "their simulator")
            )
    return found


def muri_measured(data: Path) -> list[Row]:
    """Muri's 400-job trace against what their 64-V100 testbed measured."""
    trace = read_trace(data / "muri" / "cluster_exp" / "trace-data" / "cluster_trace.csv")
    found = []
    for theirs, (policy, _) in MURI_POLICIES.items():
        result = simulate(trace, "8x8:V100", policy)
        metric = f"Muri testbed, {policy}: average JCT"
        found.append(
            Row(NAME, metric, "s", TESTBED_AVG_JCT_S[theirs], result.metrics.avg_jct_s, 0.10, "measured on 64 V100")
        )
    return found
