"""What the driver reports of a GPU: its load and processes, the MIG profiles it offers and its slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pynvml  # type: ignore[import-untyped]

from gpuwise.core.commands import MigSlice
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import MIB
from gpuwise.devices.machine import MigInstance, Reading
from gpuwise.devices.mig import layout_of, slice_milli

Handle: TypeAlias = Any
"""A GPU or a slice of one, as NVML knows it in this session."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A profile the driver offers for a GPU."""

    id: int
    name: str
    slices: int
    memory_bytes: float
    most: int
    """Instances of it that a GPU can have."""


def reading(gpu: Handle, slices: Iterable[Handle]) -> Reading:
    """What a GPU does at this moment, NaN where the driver does not report it; ``slices`` are its MIG slices."""
    used, total = memory_bytes(gpu)
    return Reading(
        util_frac=_number(lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
        memory_used_bytes=used,
        memory_total_bytes=total,
        power_w=_number(lambda: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
        temperature_c=_number(
            lambda: pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU),
            lambda: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        ),
        sm_clock_mhz=_number(lambda: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
        processes=_processes(gpu, slices),
    )


def memory_bytes(gpu: Handle) -> tuple[float, float]:
    """Used and total; drivers before R510 count what they reserve for themselves as used."""
    for version in (pynvml.nvmlMemory_v2, None):
        with suppress(pynvml.NVMLError):
            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=version)
            return float(memory.used), float(memory.total)
    return math.nan, math.nan


def processes(handle: Handle) -> dict[int, float]:
    """Memory by process id on a GPU or a slice, MPS clients included."""
    found: dict[int, float] = {}
    for listed in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle),
        _or_none(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle),
    ):
        for process in listed or ():
            used = math.nan if process.usedGpuMemory is None else float(process.usedGpuMemory)
            known = found.get(process.pid, math.nan)
            found[process.pid] = used if math.isnan(known) else max(known, used)
    return found


def mig_enabled(gpu: Handle) -> bool:
    """Whether a GPU is in MIG mode; most types of GPU have none."""
    with suppress(pynvml.NVMLError):
        return bool(pynvml.nvmlDeviceGetMigMode(gpu)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    return False


def offers(gpu: Handle) -> tuple[Offer, ...]:
    """The profiles the driver offers for a GPU; none from drivers before R510, which do not name them."""
    found = []
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError):
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind)
            name = info.name.removeprefix("MIG ")
            found.append(Offer(info.id, name, info.sliceCount, float(info.memorySizeMB * MIB), info.instanceCount))
    return tuple(found)


def slices(gpu: Handle) -> list[Handle]:
    """The slices of a GPU on which processes can run: its compute instances."""
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with suppress(pynvml.NVMLError_NotFound):
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return found


def instances(gpu: Handle, gpu_type: str) -> tuple[MigInstance, ...]:
    """The slices of a GPU in MIG mode, by where they start.

    A GPU instance with several compute instances is represented by its first. The driver reports starts to root only;
    for other users a possible layout is assumed, which is enough to distinguish the slices.
    """
    offered = offers(gpu)
    if not offered:
        return ()
    known: dict[int, tuple[str, Offer, int | None]] = {}
    for each in slices(gpu):
        number = pynvml.nvmlDeviceGetGpuInstanceId(each)
        if number not in known:
            known[number] = (pynvml.nvmlDeviceGetUUID(each), *_described(gpu, number, each, offered))
    starts = [start for _, _, start in known.values() if start is not None]
    if len(starts) < len(known):
        starts = _laid_out(gpu_type, [offer.name for _, offer, _ in known.values()])
    whole = max(offer.slices for offer in offered)
    found = [
        MigInstance(uuid, MigSlice(offer.name, start, slice_milli(offer.slices, whole), offer.memory_bytes))
        for (uuid, offer, _), start in zip(known.values(), starts, strict=True)
    ]
    return tuple(sorted(found, key=lambda instance: instance.slice.start))


def _processes(gpu: Handle, slices: Iterable[Handle]) -> dict[int, float]:
    """On a partitioned GPU, users other than root can list processes only slice by slice."""
    for handles in ((gpu,), slices):
        with suppress(pynvml.NVMLError):
            return {pid: used for handle in handles for pid, used in processes(handle).items()}
    return {}


def _number(*ways: Callable[[], float]) -> float:
    """From the first call that the driver supports."""
    for read in ways:
        with suppress(pynvml.NVMLError):
            return float(read())
    return math.nan


def _or_none(call: Callable[[Handle], Any], handle: Handle) -> Any:
    with suppress(pynvml.NVMLError):
        return call(handle)
    return None


def _described(gpu: Handle, number: int, each: Handle, offered: Sequence[Offer]) -> tuple[Offer, int | None]:
    try:
        info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(gpu, number))
    except pynvml.NVMLError_NoPermission:
        return _by_size(each, offered), None
    by_id = {offer.id: offer for offer in offered}
    return by_id.get(info.profileId) or _by_size(each, offered), info.placement.start


def _by_size(each: Handle, offered: Sequence[Offer]) -> Offer:
    """The profile nearest in slices and memory; plain ones before those with media engines."""
    size = pynvml.nvmlDeviceGetAttributes_v2(each)

    def distance(offer: Offer) -> tuple[float, float, int]:
        slices_off = abs(offer.slices - size.gpuInstanceSliceCount)
        return slices_off, abs(offer.memory_bytes - size.memorySizeMB * MIB), len(offer.name)

    return min(offered, key=distance)


def _laid_out(gpu_type: str, names: Sequence[str]) -> list[int]:
    """Starts at which these profiles are possible together; plain numbers for a type without known layouts."""
    with suppress(GpuwiseError):
        if (layout := layout_of(gpu_type, names)) is not None:
            return [one.start for one in layout]
    return list(range(len(names)))
