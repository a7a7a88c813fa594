"""Machines with GPUs for tests: described here, played by the stand-in for NVML, seen by gpuwise elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GIB = 2**30

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = 3, 4, 9, 15, 18
FUNCTION_NOT_FOUND, RESET_REQUIRED, IN_USE, INSUFFICIENT_RESOURCES, UNKNOWN = 13, 16, 19, 23, 999

# As nvidia-smi mig -lgip and -lgipp list them: kind in nvml.h, id, compute slices, size, most, MiB, starts.
A100_PROFILES = {
    "1g.5gb": (0x0, 19, 1, 1, 7, 4864, (0, 1, 2, 3, 4, 5, 6)),
    "2g.10gb": (0x1, 14, 2, 2, 3, 9856, (0, 2, 4)),
    "3g.20gb": (0x2, 9, 3, 4, 2, 19968, (0, 4)),
    "4g.20gb": (0x3, 5, 4, 4, 1, 19968, (0,)),
    "7g.40gb": (0x4, 0, 7, 8, 1, 40192, (0,)),
    "1g.5gb+me": (0x7, 20, 1, 1, 1, 4864, (0, 1, 2, 3, 4, 5, 6)),
    "1g.10gb": (0x9, 15, 1, 2, 4, 9856, (0, 2, 4, 6)),
}


@dataclass
class Gpu:
    """One GPU as its driver would report it."""

    name: str = "NVIDIA A100-SXM4-40GB"
    uuid: str = ""
    total: int = 40 * GIB
    used: int = 0
    util: int = 0
    milliwatt: int = 50_000
    celsius: int = 30
    mhz: int = 1410
    cores: int = 0
    mig: int = -1
    """-1: has none; 0: off; 1: on."""
    lost_after: int = -1
    """Number of calls; -1: never."""
    back_at_init: int = 0
    """Comes back when NVML is started for this time; 0: not by that."""
    processes: list[tuple[int, int, int]] = field(default_factory=list)
    """Process, bytes (-1: not available), MIG instance (-1: of the whole GPU)."""
    mps_processes: list[tuple[int, int]] = field(default_factory=list)
    instances: list[tuple[str, int] | tuple[str, int, int]] = field(default_factory=list)
    """Profile, start, and the number of its compute instances."""

    def lines(self, number: int) -> Iterable[str]:
        numbers = (self.total, self.used, self.util, self.milliwatt, self.celsius, self.mhz, f"{self.cores:x}")
        state = (self.mig, self.lost_after, self.back_at_init)
        yield "gpu " + "|".join(
            map(str, (self.name, self.uuid or uuid(number), f"00000000:{number:02X}:00.0", *numbers, *state))
        )
        for pid, size, instance in self.processes:
            yield f"process {number} {pid} {size} {instance} 0"
        for pid, size in self.mps_processes:
            yield f"process {number} {pid} {size} -1 1"
        if self.mig >= 0:
            for name, (kind, ident, slices, size, most, mib, starts) in A100_PROFILES.items():
                units = sum(1 << start for start in starts)
                yield f"profile {number} {kind} {ident} {slices} {size} {most} {mib} {units} {name}"
        for profile, start, *compute in self.instances:
            yield f"instance {number} {A100_PROFILES[profile][1]} {start} {compute[0] if compute else 1}"


def uuid(number: int) -> str:
    return f"GPU-{number:08d}-aaaa-bbbb-cccc-dddddddddddd"


def mig_gpu(*instances: tuple[str, int] | tuple[str, int, int], **more: Any) -> Gpu:
    """An A100 in MIG mode."""
    return Gpu(mig=1, instances=list(instances), **more)


class World:
    """The machine a test describes; ``write`` makes a change known while it is watched."""

    def __init__(self, path: Path, gpus: Iterable[Gpu]) -> None:
        self.path = path
        self.gpus = list(gpus)
        self.failures: list[str] = []
        self.setup = 1
        self.write()

    def fail(self, function: str, code: int, *, gpu: int = -1, after: int = 0, times: int = 0) -> None:
        """Makes a function of NVML return an error code once it was called ``after`` times; ``times`` 0 is for ever."""
        self.failures.append(f"fail {function} {gpu} {code} {after} {times}")
        self.write()

    def change(self, number: int, **fields: Any) -> None:
        """Gives a GPU other properties."""
        self.gpus[number] = replace(self.gpus[number], **fields)
        self.write()

    def repartition(self, number: int, *instances: tuple[str, int]) -> None:
        """Partitions a GPU as another process might."""
        self.setup += 1
        self.change(number, instances=list(instances))

    def fix(self) -> None:
        """Makes all functions work again."""
        self.failures.clear()
        self.write()

    def write(self) -> None:
        lines = [line for number, gpu in enumerate(self.gpus) for line in gpu.lines(number)]
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in [f"setup {self.setup}", *lines, *self.failures]))
        new.replace(self.path)

    @property
    def log(self) -> list[str]:
        """What was created and destroyed, in order."""
        log = Path(f"{self.path}.log")
        return log.read_text().splitlines() if log.exists() else []


class Stage:
    """A process in which the real pynvml finds a stand-in library; it forks for each machine that is opened there."""

    def __init__(self, library: Path, address: Path) -> None:
        self.address = str(address)
        self.library = str(library)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "serve.py"), self.address],
            stdout=subprocess.PIPE,
            env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(timeout=20)
        self._process.stdout.close()


class Watched:
    """A Machine that lives in another process: ask it as if it were here."""

    def __init__(self, stage: Stage, world: World, options: dict[str, Any], env: dict[str, str]) -> None:
        self._connection = Client(stage.address)
        self._ask({**env, "NVML_STANDIN": str(world.path)}, options)

    def __getattr__(self, name: str) -> Any:
        is_method, value = self._ask(name)
        return (lambda *args, **kwargs: self._ask(name, args, kwargs)[1]) if is_method else value

    def end(self) -> None:
        self._connection.close()

    def _ask(self, *question: Any) -> Any:
        self._connection.send(question)
        answer = self._connection.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def build(folder: Path) -> Path:
    """Compiles the stand-in into a folder for LD_LIBRARY_PATH."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for NVML is written in C, and there is no gcc here to compile it")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-Bsymbolic"]
    sources = map(str, sorted(HERE.glob("*.c")))
    subprocess.run([compiler, *flags, "-o", str(folder / "libnvidia-ml.so.1"), *sources], check=True, timeout=60)
    return folder
