"""Repartitioning a GPU in MIG mode: its instances are destroyed and created through the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from ctypes import byref, c_uint
from typing import Any, NamedTuple

import pynvml  # type: ignore[import-untyped]

from gpuwise.devices.machine import DeviceInUseError, MachineError
from gpuwise.devices.nvml.readings import Handle, Offer, offers, processes, slices


class Slot(NamedTuple):
    """Where an instance of a profile lies on a GPU, in placement units."""

    profile: int
    start: int
    size: int


def repartition(gpu: Handle, wanted: Sequence[tuple[str, int]]) -> None:
    """Partitions a GPU into profiles at starts; none of them means a single slice of its full size.

    Instances that exist already and are wanted stay. If the driver refuses a change, those made before it are undone
    as far as the driver allows.
    """
    target = _slots(gpu, wanted)
    before = frozenset(_existing(gpu))
    _check_unused(gpu, before - target)
    try:
        _change(gpu, target)
    except pynvml.NVMLError:
        with suppress(pynvml.NVMLError):
            _change(gpu, before)
        raise


def _slots(gpu: Handle, wanted: Sequence[tuple[str, int]]) -> frozenset[Slot]:
    offered = {offer.name: offer for offer in offers(gpu)}
    if not offered:
        raise MachineError("the driver names no MIG profiles; MIG needs driver R510 or later")
    if not wanted:
        full = min(offered.values(), key=lambda offer: (-offer.slices, len(offer.name)))
        wanted = ((full.name, 0),)
    found: set[Slot] = set()
    for name, start in wanted:
        if name not in offered:
            raise MachineError(f"no MIG profile {name!r} on this GPU; it offers {', '.join(offered)}")
        found.add(_slot(gpu, offered[name], start))
    if sum(slot.size for slot in found) > len(_units(found)) or len(found) < len(wanted):
        raise MachineError(f"MIG slices {', '.join(f'{name} at {start}' for name, start in wanted)} overlap")
    return frozenset(found)


def _slot(gpu: Handle, offer: Offer, start: int) -> Slot:
    count = c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, offer.id, None, byref(count))
    room = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    places = {
        at.start: at.size for at in _filled(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, gpu, offer.id, room)
    }
    if start not in places:
        raise MachineError(f"MIG profile {offer.name} cannot start at {start}; it can at {', '.join(map(str, places))}")
    return Slot(offer.id, start, places[start])


def _units(slots: Collection[Slot]) -> set[int]:
    return {unit for slot in slots for unit in range(slot.start, slot.start + slot.size)}


def _check_unused(gpu: Handle, leaving: Collection[Slot]) -> None:
    existing = _existing(gpu)
    numbers = {pynvml.nvmlGpuInstanceGetInfo(existing[slot]).id for slot in leaving}
    pids: set[int] = set()
    for each in slices(gpu):
        if pynvml.nvmlDeviceGetGpuInstanceId(each) in numbers:
            with suppress(pynvml.NVMLError):  # then the driver itself refuses what is in use
                pids |= processes(each).keys()
    if pids:
        listed = ", ".join(map(str, sorted(pids)))
        raise DeviceInUseError(f"it cannot be repartitioned while processes use its slices: {listed}")


def _change(gpu: Handle, target: Collection[Slot]) -> None:
    existing = _existing(gpu)
    for slot in sorted(existing.keys() - set(target)):
        _destroy(existing[slot])
    for slot in sorted(target, key=lambda slot: slot.start):
        instance = existing[slot] if slot in existing else _create(gpu, slot)
        if not any(_compute_instances(instance)):
            whole = max(_compute_profiles(instance), key=lambda info: info.sliceCount)
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)


def _existing(gpu: Handle) -> dict[Slot, Handle]:
    found = {}
    for offer in offers(gpu):
        handles = (pynvml.c_nvmlGpuInstance_t * offer.most)()
        for instance in _filled(pynvml.nvmlDeviceGetGpuInstances, gpu, offer.id, handles):
            at = pynvml.nvmlGpuInstanceGetInfo(instance).placement
            found[Slot(offer.id, at.start, at.size)] = instance
    return found


def _filled(call: Any, parent: Handle, profile: int, room: Any) -> list[Any]:
    """The items that an NVML call writes into an array; it also reports their number."""
    count = c_uint(len(room))
    call(parent, profile, room, byref(count))
    return list(room[: count.value])


def _create(gpu: Handle, slot: Slot) -> Handle:
    at = pynvml.c_nvmlGpuInstancePlacement_t(slot.start, slot.size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, slot.profile, byref(at))


def _destroy(instance: Handle) -> None:
    for compute in _compute_instances(instance):
        pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)


def _compute_instances(instance: Handle) -> Iterator[Handle]:
    for info in _compute_profiles(instance):
        room = (pynvml.c_nvmlComputeInstance_t * info.instanceCount)()
        yield from _filled(pynvml.nvmlGpuInstanceGetComputeInstances, instance, info.id, room)


def _compute_profiles(instance: Handle) -> Iterator[Any]:
    """The compute profiles of a GPU instance; the one with the most slices takes all of it."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, kind, shared, version=1)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        yield info
