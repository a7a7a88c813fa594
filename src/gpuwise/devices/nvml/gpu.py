"""One NVIDIA GPU: found, read, lost and found again; and the nodes that the GPUs of a machine make."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pynvml  # type: ignore[import-untyped]

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.errors import UnknownNameError
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.catalogue import gpu_type, gpu_types
from gpuwise.devices.host import Host
from gpuwise.devices.machine import Device, MachineError, Reading, Where
from gpuwise.devices.nvml.readings import Handle, instances, memory_bytes, mig_enabled, reading, slices

_GONE = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_UNINITIALIZED,
    }
)
"""Errors after which nothing runs on a GPU; after any other, such as an unknown error, its processes may still run."""


class Gpu:
    """A GPU in this session with the driver: its index there, and its bus id, by which it is found again when lost."""

    def __init__(self, handle: Handle, bus_id: str, device: Device, index: int = 0) -> None:
        self.handle = handle
        self.index = index
        self.bus_id = bus_id
        self.device = device
        self.lost = False

    @property
    def is_bare(self) -> bool:
        """In MIG mode without a slice, so that nothing can run on it."""
        return self.device.mig_enabled and not self.device.mig

    @property
    def is_partitioned(self) -> bool:
        """In MIG mode with slices smaller than itself."""
        return any(each.slice.milli < WHOLE_GPU_MILLI for each in self.device.mig)

    def answers(self) -> bool:
        """Whether it answers; one that was lost is searched by its bus id."""
        try:
            if self.lost:
                self.handle = self._found_again()
            pynvml.nvmlDeviceGetMemoryInfo(self.handle)
        except pynvml.NVMLError_NotSupported:
            pass
        except pynvml.NVMLError as error:
            self.lost = self.lost or error.value in _GONE
            return not self.lost
        if self.lost:
            self.lost = False
            self.device = replace(self.device, mig_enabled=mig_enabled(self.handle), mig=())
            self.refresh()
        return True

    def refresh(self) -> None:
        """Reads its slices again."""
        if self.device.mig_enabled:
            with suppress(pynvml.NVMLError):
                self.device = replace(self.device, mig=instances(self.handle, self.device.gpu_type))

    def read(self) -> Reading:
        """What it does at this moment."""
        if self.lost:
            return Reading()
        found = []
        if self.device.mig_enabled:
            with suppress(pynvml.NVMLError):
                found = slices(self.handle)
        return reading(self.handle, found)

    def whole_uuid(self) -> str:
        """The UUID by which CUDA knows all of it."""
        if not self.device.mig_enabled:
            return self.device.uuid
        self.refresh()
        if self.is_partitioned or self.is_bare:
            raise MachineError(f"GPU {self.device.uuid} is not whole; its slices: {self._slices()}")
        return self.device.mig[0].uuid

    def slice_uuid(self, start: int) -> str:
        """The UUID by which CUDA knows its slice at ``start``."""
        self.refresh()
        for each in self.device.mig:
            if each.slice.start == start:
                return each.uuid
        raise MachineError(f"GPU {self.device.uuid} has no slice at {start}; its slices: {self._slices()}")

    def _slices(self) -> str:
        return ", ".join(f"{each.slice.profile} at {each.slice.start}" for each in self.device.mig) or "none"

    def _found_again(self) -> Handle:
        """By its bus id: a search by UUID fails for every GPU as long as one of them is lost."""
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(self.bus_id)
        if pynvml.nvmlDeviceGetUUID(handle) != self.device.uuid:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle


def find_gpus(host: Host) -> tuple[list[Gpu], list[str]]:
    """The GPUs that answer, and a note about each that does not."""
    gpus, notes = [], []
    for index in range(_count()):
        try:
            gpus.append(_open(pynvml.nvmlDeviceGetHandleByIndex(index), host, index))
        except pynvml.NVMLError as error:
            notes.append(f"GPU {index} is left out: {error}")
    return gpus, notes


def nodes_of(gpus: Sequence[Gpu], host: Host) -> tuple[tuple[NodeSpec, ...], dict[Where, Gpu]]:
    """One node per GPU type, and the GPU at each place; CPUs and memory of the host are divided by number of GPUs."""
    types = list(dict.fromkeys(gpu.device.gpu_type for gpu in gpus))
    nodes: list[NodeSpec] = []
    where: dict[Where, Gpu] = {}
    for number, name in enumerate(types):
        alike = [gpu for gpu in gpus if gpu.device.gpu_type == name]
        nodes.append(
            _node(host.name if len(types) == 1 else f"{host.name}/{name}", alike, host, len(alike) / len(gpus))
        )
        where |= {(number, i): gpu for i, gpu in enumerate(alike)}
    return tuple(nodes), where


def _count() -> int:
    with suppress(pynvml.NVMLError):
        return int(pynvml.nvmlDeviceGetCount())
    return 0


def _open(handle: Handle, host: Host, index: int) -> Gpu:
    name = pynvml.nvmlDeviceGetName(handle)
    kind = _type_of(name)
    _, memory = memory_bytes(handle)
    device = Device(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=name,
        gpu_type=kind,
        memory_bytes=_listed_memory_bytes(kind) if math.isnan(memory) else memory,
        cores=_cores_near(handle, host),
        mig_enabled=mig_enabled(handle),
    )
    gpu = Gpu(handle, pynvml.nvmlDeviceGetPciInfo(handle).busId, device, index)
    gpu.refresh()
    return gpu


def _type_of(name: str) -> str:
    try:
        return gpu_type(name).name
    except UnknownNameError:
        return re.sub(r"[^\w.]+", "-", name.removeprefix("NVIDIA ")).strip("-")


def _listed_memory_bytes(kind: str) -> float:
    """For a GPU whose driver does not report it, as those that share the memory of the host."""
    listed = gpu_types()[kind].memory_bytes if kind in gpu_types() else None
    return math.inf if listed is None else float(listed)


def _cores_near(handle: Handle, host: Host) -> tuple[int, ...]:
    with suppress(pynvml.NVMLError):
        words = pynvml.nvmlDeviceGetCpuAffinity(handle, math.ceil((os.cpu_count() or 1) / 64))
        return tuple(core for core in host.cores if core // 64 < len(words) and words[core // 64] >> core % 64 & 1)
    return ()


def _node(name: str, gpus: Sequence[Gpu], host: Host, part: float) -> NodeSpec:
    kind = gpus[0].device.gpu_type
    price = gpu_types()[kind].usd_per_hour if kind in gpu_types() else None
    return NodeSpec(
        name=name,
        gpu_type=kind,
        gpus=len(gpus),
        cpus=host.cpus * part,
        memory_bytes=host.memory_bytes * part,
        gpu_memory_bytes=min(gpu.device.memory_bytes for gpu in gpus),
        usd_per_hour=math.nan if price is None else price * len(gpus),
        device_ids=tuple(gpu.device.uuid for gpu in gpus),
    )
