"""Nine MLPerf jobs on P100 and V100 as Takayama et al. measured them, their published figures, and workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import MakeRates
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.tables import Array


def seconds(text: str) -> float:
    """A time as the paper writes it: hours:minutes:seconds."""
    hours, minutes, rest = map(int, text.split(":"))
    return 3600.0 * hours + 60.0 * minutes + rest


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A job of MLPerf on a machine with one GPU."""

    p100_s: float
    v100_s: float
    gpu_util_frac: float
    """On the V100."""

    @property
    def saved_s(self) -> float:
        """What the V100 saves."""
        return self.p100_s - self.v100_s

    @property
    def gain(self) -> float:
        """How many times as fast it is on the V100."""
        return self.p100_s / self.v100_s


# "Comparison of GPU" and "Average GPU·CPU utilization" in Takayama et al., Deep Learning Workload Analysis for
# Efficient Resource Allocation. The P100 is in the Skylake machine here, as the V100 is.
BENCHMARKS: Mapping[str, Benchmark] = {
    name: Benchmark(seconds(p100), seconds(v100), percent / 100)
    for name, p100, v100, percent in (
        ("IC", "4:33:04", "3:01:13", 95.4),
        ("SSD", "3:12:18", "3:09:12", 59.8),
        ("OD", "2:57:51", "2:23:26", 74.5),
        ("RM", "1:09:07", "1:09:34", 44.3),
        ("SA", "1:48:14", "1:22:50", 82.0),
        ("RT", "4:05:28", "2:48:18", 95.5),
        ("TL", "4:29:21", "2:59:55", 83.9),
        ("SR", "15:07:34", "10:53:32", 65.1),
        ("RF", "6:08:37", "5:46:00", 62.7),
    )
}
NINE = tuple(BENCHMARKS)
EIGHT = tuple(name for name in NINE if name != "SR")
MIXES = {"eight benchmarks": EIGHT, "nine benchmarks (with SR)": NINE}

PUBLISHED = {
    # jobs: priority assignment, even assignment, reduction in percent. The last even time is printed as 4509:32:33,
    # which is neither ten times that of 1,000 jobs nor 8.248 % more than priority's: two digits are swapped.
    200: ("74:30:00", "81:11:27", 8.241),
    400: ("149:00:00", "162:22:54", 8.241),
    600: ("223:30:00", "243:34:21", 8.241),
    800: ("298:00:00", "324:45:48", 8.241),
    1000: ("372:30:00", "405:57:15", 8.241),
    10000: ("3724:42:00", "4059:32:33", 8.248),
}


NAME = "priority"
REDUCED = 8.241
WITHIN = 1.0
"""Points: the mix is not published, so ours need not be theirs."""
EQUAL = "equal parts; the paper's mix is not published"


def in_blocks(names: Sequence[str], count: int) -> list[str]:
    """Equally many jobs of each kind, one kind after the other."""
    return [names[number * len(names) // count] for number in range(count)]


def shuffled(names: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """The same in random order."""
    kinds = in_blocks(names, count)
    return [kinds[row] for row in np.random.default_rng(seed).permutation(count)]


def jobs(kinds: Sequence[str], submit_s: Array | None = None) -> list[JobSpec]:
    """Jobs on one GPU each, with their measured times and utilization; all at once if no times are given."""
    return [
        JobSpec(
            id=f"{kind}-{number}",
            submit_s=0.0 if submit_s is None else float(submit_s[number]),
            duration_s=BENCHMARKS[kind].p100_s,
            model=kind,
            gpu_util_frac=BENCHMARKS[kind].gpu_util_frac,
            speeds=(("P100", 1.0), ("V100", BENCHMARKS[kind].gain)),
        )
        for number, kind in enumerate(kinds)
    ]


def believing(gains: Mapping[str, float]) -> MakeRates:
    """Rates of jobs that are believed to have these gains from a V100, whatever was measured."""

    def make(table: JobTable, nodes: NodeTable) -> DeclaredRates:
        believed = JobTable()
        codes = table.model[: len(table)].tolist()
        believed.declare_columns(
            {
                "id": table.ids,
                "duration_s": table.duration_s[: len(table)].tolist(),
                "speeds": [(("P100", 1.0), ("V100", gains[table.models[code]])) for code in codes],
            }
        )
        return DeclaredRates(believed, nodes)

    return make
