"""The MPS daemon, by which jobs on one GPU run at the same time, each within its share."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gpuwise.core.units import MIB, WHOLE_GPU_MILLI
from gpuwise.devices.machine import MachineError

CONTROL = "nvidia-cuda-mps-control"
ANSWER_S = 10.0
"""How long the daemon may take to answer."""
PATIENCE_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses between checks of a daemon that was started and does not answer yet."""
LONGEST_PIPES = 88
"""A socket's path has at most 107 bytes, and the daemon makes ``control_privileged`` in its folder."""


class MpsError(MachineError):
    """An MPS daemon that does not start or does not answer."""


class Mps:
    """An MPS daemon with its own folders; one that already runs there is adopted, with the jobs on it."""

    def __init__(self, folder: Path) -> None:
        self._pipes, self._logs = folder.absolute() / "pipes", folder.absolute() / "logs"

    def start(self) -> None:
        """Starts the daemon unless it runs."""
        if self.healthy():
            return
        if len(os.fsencode(self._pipes)) > LONGEST_PIPES:
            raise MpsError(f"the path {self._pipes} is too long for the sockets of MPS; choose a shorter folder")
        try:
            for folder in (self._pipes, self._logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MpsError(f"MPS needs the folder {folder}: {error.strerror}") from error
        self._launch()
        if not self._comes_up():
            raise MpsError(f"{CONTROL} -d has started but does not answer; see {self._logs}")

    def healthy(self) -> bool:
        """Whether the daemon answers."""
        return self._ask("get_server_list") is not None

    def clients(self) -> tuple[int, ...]:
        """The processes that use it."""
        servers = (self._ask("get_server_list") or "").split()
        found = [pid for server in servers for pid in (self._ask(f"get_client_list {server}") or "").split()]
        return tuple(int(pid) for pid in found if pid.isdigit())

    def stop(self) -> bool:
        """Stops the daemon unless processes use it, which would end with it; returns whether it has stopped."""
        if self.clients():
            return False
        self._ask("quit")
        return not self.healthy()

    def variables(self, milli: int, memory_bytes: Sequence[float]) -> dict[str, str]:
        """The environment of a job with ``milli`` thousandths of each GPU and ``memory_bytes`` on each."""
        found = self._folders()
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(math.ceil(100 * milli / WHOLE_GPU_MILLI))
        if all(map(math.isfinite, memory_bytes)):
            limits = [f"{number}={max(1, math.floor(size / MIB))}M" for number, size in enumerate(memory_bytes)]
            found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
        return found

    def _folders(self) -> dict[str, str]:
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self._pipes), "CUDA_MPS_LOG_DIRECTORY": str(self._logs)}

    def _launch(self) -> None:
        log = self._logs / "start.log"
        with log.open("w") as output:  # the daemon would keep a pipe open for ever
            command = [_control(), "-d"]
            try:
                subprocess.run(
                    command,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=ANSWER_S,
                    check=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                why = log.read_text(errors="replace").strip() or error
                raise MpsError(f"{CONTROL} -d did not start: {why}") from error

    def _comes_up(self) -> bool:
        for pause_s in PATIENCE_S:
            time.sleep(pause_s)
            if self.healthy():
                return True
        return False

    def _ask(self, command: str) -> str | None:
        """The daemon's answer; None where there is no daemon."""
        try:
            done = subprocess.run(
                [_control()],
                input=f"{command}\n",
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=ANSWER_S,
                check=True,
            )
        except (MpsError, OSError, subprocess.SubprocessError):
            return None
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Without CUDA_VISIBLE_DEVICES: the daemon serves all GPUs, and a job is given its own by UUID."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
        return {**kept, **self._folders()}


def _control() -> str:
    path = shutil.which(CONTROL)
    if path is None:
        raise MpsError(f"{CONTROL} is not on the PATH; install the NVIDIA driver's compute utilities")
    return path
