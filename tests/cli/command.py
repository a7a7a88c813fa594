"""The command line as a user meets it: a command in, what it wrote and its exit code out."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from gpuwise.cli.main import main

COMMAND = (sys.executable, "-m", "gpuwise.cli.main")
HEADER = "id,submit_s,duration_s,gpus"


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str


def process(*args: str, folder: Path) -> Answer:
    """Runs a command in a folder, as a process of its own; its output goes to pipes."""
    done = subprocess.run([*COMMAND, *args], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def gpuwise(*args: str, folder: Path) -> Answer:
    """Runs a command in a folder and in this process, which saves the time to start; an error that escapes is ours."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with chdir(folder), redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["gpuwise", *args]):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    return Answer(code, out.getvalue(), err.getvalue())


def write_jobs(path: Path, *rows: str) -> Path:
    """Writes a trace: rows of id, submission, duration, GPUs."""
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path
