"""What the SDK costs a step, with a socket that is read and a control file that is watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import thread_time

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from sdk_overhead import attached, by_turns, controller, plain

STEP_S = 0.010


def looks_at_a_file(steps: int) -> float:
    """The least a watched file costs, for comparison."""
    began = thread_time()
    for _ in range(steps):
        os.stat("/")
    return thread_time() - began


def test_a_step_costs_a_few_looks_at_a_file_and_less_than_a_hundredth_of_10_ms() -> None:
    loops: list[Callable[[int], float]] = [plain(0), attached(0), looks_at_a_file]
    with controller() as received:
        without, with_sdk, stat = by_turns(loops, steps=1000, turns=9)
    # The best of each: other processes can only make a turn slower. Measured: 5 µs, which is 3 to 5 times a stat.
    cost_s = min(with_sdk) - min(without)
    assert cost_s < 20 * min(stat)
    assert cost_s < STEP_S / 100
    assert received
