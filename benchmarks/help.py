"""How long ``gpuwise --help`` takes, beside an interpreter that does nothing: the best of ten."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter


def best_s(*args: str) -> float:
    times = []
    for _ in range(10):
        begun = perf_counter()
        subprocess.run([sys.executable, *args], capture_output=True, check=True)
        times.append(perf_counter() - begun)
    return min(times)


if __name__ == "__main__":
    empty_s, help_s = best_s("-c", "pass"), best_s("-m", "gpuwise.cli.main", "--help")
    print(f"python -c pass {empty_s:.3f} s, gpuwise --help {help_s:.3f} s, {help_s / empty_s:.0f} times as long")
