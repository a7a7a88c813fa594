"""A cut of a GPU as it is handed out: the slices of a layout, and whether slices are such that the hardware allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from gpuwise.core.commands import MigSlice
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.units import WHOLE_GPU_MILLI, format_bytes
from gpuwise.devices.catalogue import gpu_type
from gpuwise.devices.mig import Instance, Layout, is_valid, mig_profile, mig_profiles, partitions

MEMORY_MARGIN_FRAC = 0.1
"""How far a slice's memory may be from the catalogue's: drivers differ by a few hundred MiB."""


@cache
def has_mig(gpu: str) -> bool:
    """Whether GPUs of this type can be cut; a type that the catalogue does not know cannot."""
    try:
        return bool(mig_profiles(gpu))
    except GpuwiseError:
        return False


def slice_milli(compute_slices: int, whole: int) -> int:
    """The share of a GPU that a slice of so many of its compute slices is."""
    return round(WHOLE_GPU_MILLI * compute_slices / whole)


def slice_of(gpu: str, profile: str, start: int) -> MigSlice:
    """One slice of a GPU."""
    known = mig_profile(gpu, profile)
    return MigSlice(profile, start, slice_milli(known.compute_slices, _whole(gpu)), float(known.memory_bytes))


def slices_of(gpu: str, layout: Iterable[Instance]) -> tuple[MigSlice, ...]:
    """The slices of a layout, by where they start."""
    return tuple(slice_of(gpu, *each) for each in sorted(layout, key=lambda each: each.start))


def layout_of(gpu: str, profiles: Sequence[str]) -> Layout | None:
    """A layout of just these profiles, or None where they cannot be on one GPU together."""
    for layout in partitions(gpu):
        free = {name: [one.start for one in layout if one.profile == name] for name in profiles}
        if all(len(free[name]) >= profiles.count(name) for name in profiles):
            return tuple(Instance(name, free[name].pop(0)) for name in profiles)
    return None


def check_cut(gpu: str, slices: Sequence[MigSlice]) -> None:
    """Raises an error that says why a GPU of this type cannot be cut so; of a type not in the catalogue all can."""
    if not slices:
        return
    try:
        gpu_type(gpu)
    except UnknownNameError:
        return
    for each in slices:
        known = slice_of(gpu, each.profile, each.start)
        if each.milli != known.milli:
            raise GpuwiseError(f"a slice {each.profile} of {gpu} is {known.milli}/1000 of it, not {each.milli}")
        if abs(each.memory_bytes - known.memory_bytes) > MEMORY_MARGIN_FRAC * known.memory_bytes:
            has, said = format_bytes(known.memory_bytes), format_bytes(each.memory_bytes)
            raise GpuwiseError(f"a slice {each.profile} of {gpu} has {has} of memory, not {said}")
    if not is_valid(gpu, [Instance(each.profile, each.start) for each in slices]):
        asked = ", ".join(f"{each.profile} at {each.start}" for each in slices)
        raise GpuwiseError(f"{gpu} cannot be cut into {asked}; see gpuwise.devices.partitions({gpu!r})")


@cache
def _whole(gpu: str) -> int:
    return max(profile.compute_slices for profile in mig_profiles(gpu))
