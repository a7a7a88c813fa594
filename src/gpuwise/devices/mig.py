"""MIG: the slices a GPU can be cut into, where each may start, and which cuts are possible together."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.devices.catalogue import gpu_type

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A size in which a GPU can be cut, such as ``3g.20gb``: three compute slices with 20 GB of memory.

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
    """Every way to cut the GPU to which no further instance can be added, fewest instances first."""
    return _partitions(gpu_type(gpu).name)


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
            memory_bytes=round(entry["memory_gib"] * _GIB),
            sms=entry.get("sms"),
            starts=tuple(entry["starts"]),
            max_instances=entry["max_instances"],
            source=geometry["source"],
        )
        for entry in geometry["profiles"]
    }
