"""Processes that begin with PyTorch imported already; otherwise like `subprocess.Popen`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from controller_double import PROJECT, clean_environment

ZYGOTE = Path(__file__).parent / "torch_zygote.py"


class Zygote:
    """Starts scripts by forking."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, ZYGOTE], env=clean_environment(), cwd=PROJECT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._started = 0

    def ask(self, question: dict[str, Any]) -> int | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, argv: list[str], environment: dict[str, str]) -> Forked:
        self._started += 1
        outputs = [self._folder / f"{self._started}.{name}" for name in ("out", "err")]
        pid = self.ask({"argv": argv, "env": environment, "outputs": list(map(str, outputs))})
        assert pid is not None
        return Forked(self, pid, outputs)

    def close(self) -> None:
        self._process.communicate()


class Forked:
    """A script that runs in a forked process."""

    stdout = stderr = None

    def __init__(self, zygote: Zygote, pid: int, outputs: list[Path]) -> None:
        self._zygote = zygote
        self._pid = pid
        self._outputs = outputs
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._zygote.ask({"pid": self._pid})
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, ...]:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.01)
        return tuple(path.read_text() for path in self._outputs)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        self.communicate(timeout=30)
