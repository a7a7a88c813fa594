"""Reads the results of other jobs and prints which of them is best."""

from __future__ import annotations

import json
import sys

from gpuwise.demo.jobs.script import RESULTS, finish


def main() -> None:
    """Prints a table of the jobs named on the command line, lowest loss first."""
    found = {job: json.loads((RESULTS / f"{job}.json").read_text(encoding="utf-8")) for job in sys.argv[1:]}
    ranked = sorted(found, key=lambda job: float(found[job]["loss"]))
    columns = sorted(set().union(*found.values()))
    print("  ".join(f"{name:>14}" for name in ("job", *columns)))
    for job in ranked:
        print("  ".join(f"{cell:>14}" for cell in (job, *(f"{found[job].get(name, 0):.4g}" for name in columns))))
    print(f"best: job {ranked[0]}")
    finish(**found[ranked[0]])


if __name__ == "__main__":
    main()
