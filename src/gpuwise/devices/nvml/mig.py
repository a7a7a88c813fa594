"""MIG as the driver sees it: the profiles a GPU offers, and the slices it is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]

from gpuwise.core.commands import MigSlice
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import MIB
from gpuwise.devices.machine import MigInstance
from gpuwise.devices.mig_slices import layout_of, slice_milli
from gpuwise.devices.nvml.readings import Handle


@dataclass(frozen=True, slots=True)
class Offer:
    """A profile the driver offers for a GPU."""

    id: int
    name: str
    slices: int
    memory_bytes: float
    most: int
    """Instances of it that a GPU can have."""


def is_enabled(gpu: Handle) -> bool:
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
    """The slices of a GPU that can run something: its compute instances."""
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with suppress(pynvml.NVMLError_NotFound):
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return found


def instances(gpu: Handle, gpu_type: str) -> tuple[MigInstance, ...]:
    """What a GPU in MIG mode is cut into, by where the slices start.

    A GPU instance that holds several compute instances is represented by its first. Where instances lie only root is
    told; for others they are laid out in a way that is possible, which serves as well to tell them apart.
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


def _described(gpu: Handle, number: int, each: Handle, offered: Sequence[Offer]) -> tuple[Offer, int | None]:
    try:
        info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(gpu, number))
    except pynvml.NVMLError_NoPermission:
        return _by_size(each, offered), None
    by_id = {offer.id: offer for offer in offered}
    return by_id.get(info.profileId) or _by_size(each, offered), info.placement.start


def _by_size(each: Handle, offered: Sequence[Offer]) -> Offer:
    """The offer nearest in slices and memory; plain ones before those with media engines."""
    size = pynvml.nvmlDeviceGetAttributes_v2(each)

    def distance(offer: Offer) -> tuple[float, float, int]:
        slices_off = abs(offer.slices - size.gpuInstanceSliceCount)
        return slices_off, abs(offer.memory_bytes - size.memorySizeMB * MIB), len(offer.name)

    return min(offered, key=distance)


def _laid_out(gpu_type: str, names: Sequence[str]) -> list[int]:
    """Starts at which instances of these profiles can lie together; just numbers for a type without known layouts."""
    with suppress(GpuwiseError):
        if (layout := layout_of(gpu_type, names)) is not None:
            return [one.start for one in layout]
    return list(range(len(names)))
