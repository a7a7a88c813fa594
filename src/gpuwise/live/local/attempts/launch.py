"""What an attempt is started with: its processes, their environment and limits, as written to launch.json."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest, Processes
from gpuwise.core.job.shape import task_counts
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.machine import Machine
from gpuwise.engine.journal import plain
from gpuwise.live.local.accounts import Account, Accounts
from gpuwise.live.local.attempts.folders import FORMAT, JOB, Attempt, Folders
from gpuwise.live.local.attempts.limits import Cgroups, limits_of, memory_limit_bytes
from gpuwise.live.open_files import ORIGINAL_FILES

INHERITED = (
    "PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV",
)  # fmt: skip
"""What a job sees of the controller's own environment, with LC_*; the rest, secrets above all, it never sees."""
OF_THE_SERVICE = ("TMPDIR",)
"""Not for a job of another account, which may not write there."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What the controller knows of a job that is to be started."""

    request: JobRequest
    memory_bytes: float = 0.0
    """What it is forecast to need on each GPU; 0 is unknown."""
    array_index: int | None = None
    user: str = ""
    """Whose job it is."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a job."""

    role: str
    index: int
    """Among those of its role, from 0."""
    count: int
    """How many its role has."""
    placement: Placement
    """Its own devices; none for a task without GPUs."""

    def environment(self) -> dict[str, str]:
        """What a process knows itself by."""
        return {
            "GPUWISE_ROLE": self.role,
            "GPUWISE_ROLE_INDEX": str(self.index),
            "GPUWISE_ROLE_COUNT": str(self.count),
        }


@dataclass(frozen=True, slots=True)
class Launcher:
    """Writes the launch files of one service."""

    folders: Folders
    machine: Machine
    cgroups: Cgroups | None
    accounts: Accounts | None = None
    """None: jobs run as the account of the service."""

    def write(self, attempt: Attempt, token: str, spec: LaunchSpec, placement: Placement) -> None:
        """Makes an attempt's folder with all that its supervisor needs to start it."""
        request, machine = spec.request, self.machine
        account = self.accounts.of(spec.user) if self.accounts is not None else None
        self.folders.make(attempt, account)
        environment = self._environment(attempt, token, spec, placement, account)
        memory_bytes = memory_limit_bytes(request, spec.memory_bytes, placement, machine)
        limits = limits_of(self.cgroups, attempt.name, memory_bytes, machine.cores(placement))
        attempt.write(
            "launch",
            {
                "v": FORMAT,
                "uid": attempt.uid,
                "attempt": attempt.number,
                "token": token,
                "processes": self._processes(environment, spec, placement),
                "cwd": request.workdir or str(self.folders.work(attempt.uid)),
                "folders": [str(self.folders.work(attempt.uid)), str(self.folders.checkpoint(attempt.uid))],
                "output": str(self.folders.output(attempt.uid)),
                "socket": str(self.socket),
                "rlimits": {"RLIMIT_NOFILE": ORIGINAL_FILES, **limits.rlimits},
                "cgroup": str(limits.cgroup) if limits.cgroup is not None else None,
                "memory_bytes": limits.memory_bytes if limits.memory_bytes < float("inf") else None,
                "grace_s": request.grace_s,
                "time_limit_s": request.time_limit_s,
                "per_gpu": request.processes is Processes.PER_GPU,
                "placement": plain(placement),
                **({"account": account.launched()} if account is not None else {}),
                **({"terminal": request.terminal} if request.terminal else {}),
                **({"task_gpus": task_gpus(request)} if placement.tasks else {}),
            },
        )

    @property
    def socket(self) -> Path:
        """Where jobs and supervisors send their messages."""
        return self.folders.root / "sdk.sock"

    def affinity(self, per_gpu: bool, placement: Placement) -> list[list[int] | None]:
        """The cores of each process; None leaves it free."""
        parts = split(placement) if per_gpu else [placement]
        return [None if (cores := self.machine.cores(part)) is None else list(cores) for part in parts]

    def task_affinity(self, tasks: Sequence[Task], placement: Placement) -> list[list[int] | None]:
        """The cores of each task; one without devices may use those of all."""
        parts = [task.placement if task.placement.grants else placement for task in tasks]
        return [list(cores) if (cores := self.machine.cores(part)) else None for part in parts]

    def move(self, attempt: Attempt, per_gpu: bool, placement: Placement) -> list[list[int] | None]:
        """Opens the cores of another place to an attempt; those that each of its processes is to be moved to."""
        if self.cgroups is not None:
            self.cgroups.confine(attempt.name, self.machine.cores(placement))
        if placement.tasks:
            return self.task_affinity(tasks_of(placement, attempt.read("launch")["task_gpus"]), placement)
        return self.affinity(per_gpu, placement)

    def _processes(self, common: dict[str, str], spec: LaunchSpec, placement: Placement) -> list[dict[str, Any]]:
        request = spec.request
        if placement.tasks:
            return self._task_processes(spec, common, placement)
        per_gpu = request.processes is Processes.PER_GPU
        affinity = self.affinity(per_gpu, placement)
        if not per_gpu:
            return [{"argv": request.command, "env": common, "affinity": affinity[0]}]
        ranks = str(placement.gpus)
        world = {
            "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())
        }  # fmt: skip
        processes = []
        for rank, part in enumerate(split(placement)):
            own = {**self._own(part), **world, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append({"argv": request.command, "env": common | own, "affinity": affinity[rank]})
        return processes

    def _task_processes(self, spec: LaunchSpec, common: dict[str, str], placement: Placement) -> list[dict[str, Any]]:
        """One process per task, all in one world; each sees its own devices only, so its local rank is 0."""
        tasks = tasks_of(placement, task_gpus(spec.request))
        world = {"WORLD_SIZE": str(len(tasks)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        affinity = self.task_affinity(tasks, placement)
        processes = []
        for rank, task in enumerate(tasks):
            shown = self.machine.environment(as_asked(task.placement, spec.request), memory_bytes=spec.memory_bytes)
            if not task.placement.grants:
                shown.pop("OMP_NUM_THREADS", None)  # as many threads as it has devices would be none
            own = {**world, **task.environment(), "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            processes.append({"argv": spec.request.command, "env": common | shown | own, "affinity": affinity[rank]})
        return processes

    def _own(self, part: Placement) -> dict[str, str]:
        """What the one device of a process changes; on GPUs every process sees all, and takes the one of its rank."""
        return self.machine.environment(part) if self.machine.stand_in else {}

    def _environment(
        self, attempt: Attempt, token: str, spec: LaunchSpec, placement: Placement, account: Account | None
    ) -> dict[str, str]:
        devices = [self.machine.devices[node][device].uuid for node, device in placement.devices()]
        given = {
            "GPUWISE_JOB_ID": attempt.uid,
            "GPUWISE_ATTEMPT": str(attempt.number),
            "GPUWISE_TOKEN": token,
            "GPUWISE_SOCKET": str(self.socket),
            "GPUWISE_ATTEMPT_DIR": str(attempt.folder / JOB),
            "GPUWISE_CHECKPOINT_DIR": str(self.folders.checkpoint(attempt.uid)),
            "GPUWISE_GPUS": str(placement.gpus),
            "GPUWISE_DEVICES": ",".join(devices),
        }
        if spec.array_index is not None:
            given["GPUWISE_ARRAY_INDEX"] = str(spec.array_index)
        shown = self.machine.environment(as_asked(placement, spec.request), memory_bytes=spec.memory_bytes)
        return inherited(spec.request.env, account) | dict(spec.request.env) | given | shown


def tasks_of(placement: Placement, gpus: Mapping[str, int]) -> list[Task]:
    """Every task of a placement in the order of its roles, with the GPUs that a task of each role has."""
    devices: dict[int, list[Grant]] = {}
    for grant in placement.grants:
        single = [1 << device for device in range(grant.devices.bit_length()) if grant.devices >> device & 1]
        devices.setdefault(grant.node, []).extend(grant._replace(devices=each) for each in single)
    counts, seen = task_counts(placement.tasks), dict.fromkeys(gpus, 0)
    tasks: list[Task] = []
    for role, node, number in placement.tasks:
        for _ in range(number):
            own, devices[node] = devices.get(node, [])[: gpus[role]], devices.get(node, [])[gpus[role] :]
            part = Placement(tuple(own), placement.sharing, placement.milli)
            tasks.append(Task(role, seen[role], counts[role], part))
            seen[role] += 1
    return tasks


def task_gpus(request: JobRequest) -> dict[str, int]:
    """GPUs of a task of each role of a job."""
    return {role.name: role.gpus for role in request.roles}


def inherited(own: Mapping[str, str], account: Account | None = None) -> dict[str, str]:
    """The part of our own environment that jobs may see; a venv of ours is none of a job with a PATH of its own.

    A job of another account has that account's home, name and shell.
    """
    found = {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith("LC_")}
    if "PATH" in own:
        found.pop("VIRTUAL_ENV", None)
    if account is None:
        return found
    return {name: value for name, value in found.items() if name not in OF_THE_SERVICE} | account.environment()


def as_asked(placement: Placement, request: JobRequest) -> Placement:
    """The placement whose share limits a job: one that asked for whole GPUs may use all that its neighbours leave.

    Its share then only says how many jobs may be beside it, which policies count.
    """
    if placement.sharing is Sharing.SHARED and request.gpu_frac == 1.0:
        return placement._replace(milli=WHOLE_GPU_MILLI)
    return placement


def split(placement: Placement) -> list[Placement]:
    """The placement of each process where there is one per device."""
    return [
        Placement((Grant(grant.node, 1 << device, grant.slice_start),), placement.sharing, placement.milli)
        for grant in placement.grants
        for device in range(grant.devices.bit_length())
        if grant.devices >> device & 1
    ]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
