"""MIG: the slices a GPU can be partitioned into, where each may start, and which are possible together."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gpuwise.core.commands import MigSlice
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.units import GIB, WHOLE_GPU_MILLI, format_bytes
from gpuwise.devices.catalogue import gpu_type

MEMORY_MARGIN_FRAC = 0.1
"""How far a slice's memory may be from the catalogue's: drivers differ by a few hundred MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A size of slice that a GPU offers, such as ``3g.20gb``: three compute slices with 20 GB of memory.

    An instance takes ``memory_slices`` adjacent placement units from one of ``starts``; two instances share none.
    ``sms`` is None where NVIDIA does not publish it.
    """

    name: str
    compute_slices: int
    memory_slices: int
    memory_bytes: int
    sms: int | None = None
    starts: tuple[int, ...]
    max_instances: int
    source: str

    def units(self, start: int) -> int:
        """The placement units an instance occupies from ``start``, as a bit mask."""
        return ((1 << self.memory_slices) - 1) << start


class Instance(NamedTuple):
    """One slice on a GPU: its profile and the placement unit at which it starts."""

    profile: str
    start: int


Layout: TypeAlias = tuple[Instance, ...]


def mig_profiles(gpu: str) -> tuple[MigProfile, ...]:
    """The profiles a GPU type offers, smallest first."""
    return tuple(_profiles(gpu).values())


def mig_profile(gpu: str, profile: str) -> MigProfile:
    """One profile of a GPU type by its name, such as ``mig_profile("A100", "3g.20gb")``."""
    known = _profiles(gpu)
    if profile not in known:
        raise UnknownNameError(f"MIG profile of {gpu_type(gpu).name}", profile, known)
    return known[profile]


def free_starts(gpu: str, layout: Iterable[Instance], profile: str) -> tuple[int, ...]:
    """Where an instance of ``profile`` can still be made beside those in ``layout``, which is taken to be valid."""
    wanted = mig_profile(gpu, profile)
    return _starts_left(wanted, _occupied(gpu, layout))


def is_valid(gpu: str, layout: Iterable[Instance]) -> bool:
    """Whether the instances can be on one GPU together: each at a start its profile allows, no two overlapping."""
    occupied = 0
    for profile, start in layout:
        wanted = mig_profile(gpu, profile)
        if start not in wanted.starts or occupied & wanted.units(start):
            return False
        occupied |= wanted.units(start)
    return True


def best_start(gpu: str, layout: Iterable[Instance], profile: str) -> int | None:
    """The free start that leaves the most placements open for what may come next; None where nothing is free.

    Counts, over all profiles, the starts still free afterwards, and takes the lowest of equal ones. A first 3g.20gb
    thus goes to the upper half of an A100, so that a 4g.20gb still fits below it.
    """
    wanted = mig_profile(gpu, profile)
    occupied = _occupied(gpu, layout)
    starts = _starts_left(wanted, occupied)
    return max(starts, key=lambda start: _openness(gpu, occupied | wanted.units(start)), default=None)


def partitions(gpu: str) -> tuple[Layout, ...]:
    """Every layout to which no further instance can be added, fewest instances first."""
    return _partitions(gpu_type(gpu).name)


@cache
def has_mig(gpu: str) -> bool:
    """Whether GPUs of this type have MIG; a type that is not in the catalogue has not."""
    try:
        return bool(mig_profiles(gpu))
    except GpuwiseError:
        return False


def slice_milli(compute_slices: int, whole: int) -> int:
    """The share of a GPU, in thousandths, that a slice with this number of its compute slices is."""
    return round(WHOLE_GPU_MILLI * compute_slices / whole)


def slice_of(gpu: str, profile: str, start: int) -> MigSlice:
    """The slice of a GPU that a profile at a start makes."""
    known = mig_profile(gpu, profile)
    return MigSlice(profile, start, slice_milli(known.compute_slices, _compute_slices(gpu)), float(known.memory_bytes))


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


def check_slices(gpu: str, slices: Sequence[MigSlice]) -> None:
    """Raises an error if a GPU of this type cannot be partitioned into these slices; an unknown type always can."""
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
            has, given = format_bytes(known.memory_bytes), format_bytes(each.memory_bytes)
            raise GpuwiseError(f"a slice {each.profile} of {gpu} has {has} of memory, not {given}")
    if not is_valid(gpu, [Instance(each.profile, each.start) for each in slices]):
        asked = ", ".join(f"{each.profile} at {each.start}" for each in slices)
        raise GpuwiseError(f"{gpu} cannot be partitioned into {asked}; see gpuwise.devices.partitions({gpu!r})")


@cache
def _partitions(gpu: str) -> tuple[Layout, ...]:
    profiles = _profiles(gpu)
    smallest_last = {name: -rank for rank, name in enumerate(profiles)}
    maximal = (layout for layout, occupied in _layouts(profiles) if not _openness(gpu, occupied))
    order = [(len(layout), [(one.start, smallest_last[one.profile]) for one in layout], layout) for layout in maximal]
    return tuple(layout for *_, layout in sorted(order))


def _layouts(profiles: Mapping[str, MigProfile], after: int = -1, occupied: int = 0) -> Iterator[tuple[Layout, int]]:
    """All valid layouts whose instances start after a unit, with the units they and the given ones occupy."""
    yield (), occupied
    for name, profile in profiles.items():
        for start in _starts_left(profile, occupied):
            if start > after:
                first = Instance(name, start)
                for rest, taken in _layouts(profiles, start, occupied | profile.units(start)):
                    yield (first, *rest), taken


def _occupied(gpu: str, layout: Iterable[Instance]) -> int:
    occupied = 0
    for profile, start in layout:
        occupied |= mig_profile(gpu, profile).units(start)
    return occupied


@cache
def _starts_left(profile: MigProfile, occupied: int) -> tuple[int, ...]:
    return tuple(start for start in profile.starts if not occupied & profile.units(start))


def _openness(gpu: str, occupied: int) -> int:
    return sum(len(_starts_left(profile, occupied)) for profile in _profiles(gpu).values())


@cache
def _profiles(gpu: str) -> Mapping[str, MigProfile]:
    name = gpu_type(gpu).name
    known = _geometries()
    if name not in known:
        raise GpuwiseError(f"{name} has no MIG; GPU types that have it: {', '.join(known)}")
    return known[name]


@cache
def _geometries() -> Mapping[str, Mapping[str, MigProfile]]:
    document = tomllib.loads(Path(__file__).with_name("mig.toml").read_text(encoding="utf-8"))
    return {gpu: _parse(geometry) for geometry in document["geometries"].values() for gpu in geometry["gpus"]}


def _parse(geometry: dict[str, Any]) -> Mapping[str, MigProfile]:
    return {
        entry["name"]: MigProfile(
            name=entry["name"],
            compute_slices=entry["compute_slices"],
            memory_slices=entry["memory_slices"],
            memory_bytes=round(entry["memory_gib"] * GIB),
            sms=entry.get("sms"),
            starts=tuple(entry["starts"]),
            max_instances=entry["max_instances"],
            source=geometry["source"],
        )
        for entry in geometry["profiles"]
    }


@cache
def _compute_slices(gpu: str) -> int:
    return max(profile.compute_slices for profile in mig_profiles(gpu))
