"""Speed, as ratios to a reference loop in the same run."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from time import perf_counter

import pytest

import gpuwise
from gpuwise.sim.traces import prolong

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from one_decision import one_decision

BUDGETS = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text(encoding="utf-8"))


def reference_s() -> float:
    begun = perf_counter()
    cells: dict[int, int] = {}
    for number in range(2_000_000):
        cells[number & 1023] = number
    return perf_counter() - begun


def ratio(run) -> float:
    """The best of three runs against the reference beside each."""
    found = []
    for _ in range(3):
        before = reference_s()
        took = run()
        found.append(took / ((before + reference_s()) / 2))
    return min(found)


@pytest.fixture(scope="module")
def trace():
    return gpuwise.read_trace("gen:philly?jobs=20000&load=0.15&gpus=2496&seed=0")


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "las"])
def test_a_run_keeps_to_its_budget(policy, trace):
    measured = ratio(lambda: gpuwise.simulate(trace, "312x8:V100", policy).wall_s)
    assert measured < BUDGETS[policy]["limit"], f"{policy}: {measured:.1f} times the reference"


def test_one_decision_over_the_whole_cluster_keeps_to_its_budget():
    measured = ratio(lambda: one_decision("fifo")[0])
    assert measured < BUDGETS["one_decision"]["limit"], f"{measured:.2f} times the reference"


def test_four_times_the_jobs_take_about_four_times_as_long():
    trace = gpuwise.read_trace("gen:philly?jobs=5000&load=0.15&gpus=2496&seed=0")
    longer = prolong(trace, 4)
    # Short and long by turns, so that a slow spell of the machine meets both; the best of each.
    runs = [[gpuwise.simulate(which, "312x8:V100", "fifo").wall_s for which in (trace, longer)] for _ in range(7)]
    short_s, long_s = (min(each) for each in zip(*runs, strict=True))
    assert long_s / short_s < BUDGETS["four_times_the_jobs"]["limit"], f"{long_s / short_s:.2f} times as long"
