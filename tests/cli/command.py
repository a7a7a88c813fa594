"""The command line as a user meets it: a process of its own, with what it wrote and how long it took."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

COMMAND = (sys.executable, "-m", "gpuwise.cli.main")
HEADER = "id,submit_s,duration_s,gpus"


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str
    wall_s: float


def gpuwise(*args: str, folder: Path) -> Answer:
    """Runs a command in a folder; its output goes to pipes."""
    begun = perf_counter()
    done = subprocess.run([*COMMAND, *args], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return Answer(done.returncode, done.stdout, done.stderr, perf_counter() - begun)


def write_jobs(path: Path, *rows: str) -> Path:
    """Writes a trace: rows of id, submission, duration, GPUs."""
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path
