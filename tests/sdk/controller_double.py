"""The controller's side of the SDK, as far as a job can see it: a socket, control.json, and the job's environment."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TIMEOUT_S = 120.0
PROJECT = Path(__file__).resolve().parents[2]
COUNT_UP = Path(__file__).parent / "count_up.py"


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what a controller or launcher would have set."""
    ours = ("GPUWISE_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "TORCHELASTIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.005)
    raise AssertionError(f"waited {timeout_s} s in vain for {what}")


Start = Callable[[list[str], dict[str, str]], Any]
"""Starts a script with arguments and an environment; what it returns is like `subprocess.Popen`."""


def start_python(argv: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *argv], env=environment, cwd=PROJECT, text=True, **pipes)


class Processes:
    """The processes of one attempt, and what they said."""

    def __init__(
        self, argv: Sequence[object], environments: Sequence[dict[str, str]], start: Start = start_python
    ) -> None:
        self.each: list[Any] = [start([str(each) for each in argv], environment) for environment in environments]

    def end(self) -> list[tuple[int, str, str]]:
        """Exit code, stdout and stderr of each; one that does not end is a failure, not a test that hangs."""
        try:
            said = [process.communicate(timeout=TIMEOUT_S) for process in self.each]
        finally:
            self.kill()
        return [(process.returncode, *texts) for process, texts in zip(self.each, said, strict=True)]

    def codes(self) -> list[int]:
        return [code for code, _, _ in self.end()]

    def signal(self, number: int) -> None:
        for process in self.each:
            process.send_signal(number)

    def kill(self) -> None:
        for process in self.each:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


class ControllerDouble:
    """One job, launched as often as the test likes; every attempt has a folder, all share the checkpoint folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.checkpoint = state / "jobs" / "17" / "checkpoint"
        self.socket_path = state / "sdk.sock"
        self.messages: list[dict[str, Any]] = []
        self.attempt = 0
        self._seq = 0
        self._launched: list[Processes] = []
        self._closing = threading.Event()
        self._receiver: threading.Thread | None = None

    def __enter__(self) -> ControllerDouble:
        self.state.mkdir(parents=True, exist_ok=True)
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()
        for processes in self._launched:
            processes.kill()

    def listen(self) -> None:
        """Makes the socket, as a controller does that was started, or started again."""
        folder = os.open(self.socket_path.parent, os.O_PATH | os.O_DIRECTORY)
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.bind(f"/proc/self/fd/{folder}/{self.socket_path.name}")  # as the path may be too long for an address
        os.close(folder)
        receiver.settimeout(0.05)
        self._closing.clear()
        self._receiver = threading.Thread(target=self._receive, args=(receiver,), daemon=True)
        self._receiver.start()

    def go_away(self) -> None:
        self._closing.set()
        if self._receiver is not None:
            self._receiver.join()
        self.socket_path.unlink(missing_ok=True)

    def _receive(self, receiver: socket.socket) -> None:
        with receiver:
            while not self._closing.is_set():
                try:
                    datagram = receiver.recv(65536)
                except TimeoutError:
                    continue
                assert len(datagram) <= 4096
                self.messages.append(json.loads(datagram))

    @property
    def folder(self) -> Path:
        """The folder of the current attempt."""
        return self.state / "jobs" / "17" / "attempts" / str(self.attempt)

    def environment(self, rank: int, ranks: int, port: int) -> dict[str, str]:
        told = {
            "GPUWISE_JOB_ID": "17", "GPUWISE_ATTEMPT": str(self.attempt), "GPUWISE_TOKEN": f"token-{self.attempt}",
            "GPUWISE_SOCKET": str(self.socket_path), "GPUWISE_ATTEMPT_DIR": str(self.folder),
            "GPUWISE_CHECKPOINT_DIR": str(self.checkpoint), "GPUWISE_GPUS": str(ranks),
        }  # fmt: skip
        if ranks > 1:
            told |= {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
        return clean_environment(**told)

    def launch(self, *argv: object, ranks: int = 1, start: Start = start_python, **environment: str) -> Processes:
        self.attempt += 1
        self.folder.mkdir(parents=True)
        (self.state / "finish").unlink(missing_ok=True)
        port = free_port()
        environments = [self.environment(rank, ranks, port) | environment for rank in range(ranks)]
        processes = Processes(argv, environments, start)
        self._launched.append(processes)
        return processes

    @property
    def until_told(self) -> tuple[object, ...]:
        """Arguments for a job that runs until `finish`, and so is not over before a test has come to its point."""
        return "--steps", 10**6, "--pause", 0.005, "--finish", self.state / "finish"

    def finish(self) -> None:
        (self.state / "finish").touch()

    def ask(self, want: str) -> int:
        """Writes control.json as the contract says: by rename, with a number that rises."""
        self._seq += 1
        self.write_control(json.dumps({"seq": self._seq, "want": want}))
        return self._seq

    def write_control(self, text: str | bytes) -> None:
        temporary = self.folder / "control.tmp"
        temporary.write_bytes(text if isinstance(text, bytes) else text.encode())
        temporary.replace(self.folder / "control.json")

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Messages of a kind from the current attempt."""
        return [each for each in self.messages if each["kind"] == kind and each["attempt"] == self.attempt]

    def wait_for(self, kind: str, **content: Any) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((each for each in self.said(kind) if content.items() <= each.items()), None)

        return wait_until(found, f"{kind} {content}")

    def wait_for_step(self, step: int) -> None:
        wait_until(lambda: any(each["step"] >= step for each in self.said("progress")), f"step {step}")

    def read(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def latest(self) -> dict[str, Any]:
        return json.loads((self.checkpoint / "latest.json").read_text(encoding="utf-8"))
