"""What a simulation costs, counted in function calls: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

import gpuwise
from counting import calls_when_warm
from gpuwise.sim.traces.trace import Trace, prolong

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from one_decision import one_decision

BUDGETS = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text(encoding="utf-8"))
CLUSTER = "312x8:V100"


def light(jobs: int) -> Trace:
    return gpuwise.read_trace(f"gen:philly?jobs={jobs}&load=0.15&gpus=2496&seed=0")


def keeps_to(budget: str, measured: float) -> None:
    limit = BUDGETS[budget]["limit"]
    assert measured < limit, f"{budget}: {measured:.2f}, and the limit is {limit}; see budgets.toml"


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "las"])
def test_a_run_keeps_to_its_budget(policy: str) -> None:
    trace = light(2000)
    keeps_to(policy, calls_when_warm(lambda: gpuwise.simulate(trace, CLUSTER, policy)) / len(trace))


def test_one_decision_over_the_whole_cluster_keeps_to_its_budget() -> None:
    keeps_to("one_decision", calls_when_warm(lambda: one_decision("fifo")) / 4000)


def test_four_times_the_jobs_take_about_four_times_the_work() -> None:
    trace = light(2000)
    short, long = (
        calls_when_warm(lambda each=each: gpuwise.simulate(each, CLUSTER, "fifo"))
        for each in (trace, prolong(trace, 4))
    )
    keeps_to("four_times_the_jobs", long / short)
