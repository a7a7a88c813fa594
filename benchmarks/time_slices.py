"""What taking turns costs: two jobs alone, then by turns on one CPU stand-in, through the SDK and by SIGSTOP.

    python benchmarks/time_slices.py [--seconds 10] [--quantum 0.5]

Prints the share of the steps that each job got, the cost of a switch, and the steps of both together as a ratio to one
job alone: 1 would be switching for nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import gpuwise
from gpuwise.core.assignments import Assignment, Intent, Where
from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest
from gpuwise.devices.cpu import CpuMachine
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.launch import LaunchSpec
from gpuwise.live.local.executor import LocalExecutor

STEP_S = 0.005
TRAINING = f"""
import sys, time
sys.path.insert(0, {str(Path(gpuwise.__file__).parents[1])!r})
from gpuwise import sdk
functions = (lambda path: path.touch(), lambda path: None) if sys.argv[2] == "sdk" else ()
count = open(sys.argv[1], "ab", buffering=0)
for step in sdk.attach(*functions).steps():
    ends = time.perf_counter() + {STEP_S}
    while time.perf_counter() < ends: pass
    count.write(b".")
"""


class Trial:
    """Some jobs on one device for some time."""

    def __init__(self, folder: Path, kind: str, jobs: int, quantum_s: float) -> None:
        self.machine = CpuMachine(1, 2**30)
        self.counts = {f"job{number}": folder / f"job{number}.count" for number in range(jobs)}
        specs = {
            uid: LaunchSpec(JobRequest(command=(sys.executable, "-c", TRAINING, str(count), kind)), 0.0)
            for uid, count in self.counts.items()
        }
        self.executor = LocalExecutor(folder, self.machine, Clock(time.time()), specs.__getitem__, b"benchmark")
        self.placement = Placement((Grant(0, 1),), Sharing.TIME_SLICE, 1000 // jobs, quantum_s)

    def order(self, intent: Intent) -> None:
        spec = self.machine.nodes[0]
        where = (Where(spec.name, (spec.device_id(0),)),) if intent is Intent.RUN else ()
        placement = self.placement if intent is Intent.RUN else None
        self.executor.follow([Assignment(uid, 1, intent, where, placement) for uid in self.counts])

    def turn(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.executor.observe(self.executor._clock.now_s() + 0.1)

    def steps(self) -> list[int]:
        return [count.stat().st_size if count.exists() else 0 for count in self.counts.values()]

    def run(self, seconds: float) -> list[int]:
        """The steps of each job in ``seconds``, once all have started."""
        self.order(Intent.RUN)
        while not all(self.steps()):
            self.turn(0.1)
        before = self.steps()
        self.turn(seconds)
        done = [after - first for after, first in zip(self.steps(), before, strict=True)]
        self.order(Intent.STOP)
        while self.executor.processes():
            self.turn(0.1)
        self.executor.close()
        return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quantum", type=float, default=0.5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = Trial(Path(folder) / "alone", "sdk", 1, asked.quantum).run(asked.seconds)[0]
        print(f"alone: {alone} steps in {asked.seconds:g} s")
        for kind in ("sdk", "sigstop"):
            trial = Trial(Path(folder) / kind, kind, 2, asked.quantum)
            done = trial.run(asked.seconds)
            cost = trial.executor.switching()
            shares = " and ".join(f"{each / sum(done):.1%}" for each in done)
            each_ms = 1000 / max(1, cost.switches)
            print(
                f"{kind}: {shares} of the steps; {cost.switches} switches, {cost.lost_s * each_ms:.1f} ms each "
                f"({cost.stopping_s * each_ms:.1f} to stop, {cost.starting_s * each_ms:.1f} to continue); "
                f"{sum(done) / alone:.3f} of one job alone"
            )


if __name__ == "__main__":
    main()
