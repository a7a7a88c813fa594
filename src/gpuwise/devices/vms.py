"""The catalogue of VM types: what a cloud rents by the hour, with how many GPUs, and for how much."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpuwise.core.errors import UnknownNameError
from gpuwise.devices.catalogue import gpu_type

_GIB = 2**30

# In front of every Azure size, and usually left out.
_PREFIX = "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class VmType:
    """A kind of VM with whole GPUs of one type, and its price in the region where it is cheapest on demand.

    ``gpu`` is the name of a GPU type of the catalogue. ``usd_per_hour_spot`` is the spot price in the same region, in
    its cheapest zone; None where none is listed. ``source`` says which price list the figures are from, of which day.
    """

    name: str
    cloud: str
    gpu: str
    gpus: int
    vcpus: int
    memory_bytes: int
    region: str
    usd_per_hour: float
    usd_per_hour_spot: float | None = None
    source: str = field(repr=False, compare=False)

    @property
    def usd_per_gpu_hour(self) -> float:
        """The price on demand of one of its GPUs, with its part of the host."""
        return self.usd_per_hour / self.gpus


def vm_types(gpu: str | None = None, cloud: str | None = None) -> Mapping[str, VmType]:
    """VM types by name, cheapest first: all, or those with a type of GPU (any of its names), of a cloud, or both."""
    gpu = None if gpu is None else gpu_type(gpu).name
    cloud = None if cloud is None else _cloud(cloud)
    chosen = (vm for vm in catalogue().values() if gpu in (None, vm.gpu) and cloud in (None, vm.cloud))
    return MappingProxyType({vm.name: vm for vm in chosen})


def vm_type(name: str) -> VmType:
    """The VM type of that name, whatever its case and separators: ``P3DN.24xlarge``, ``nc6s v3``.

    Azure's ``Standard_`` in front may be left out.
    """
    try:
        return _by_key()[_key(name)]
    except KeyError:
        raise UnknownNameError("VM type", name, _names_like(name), "gpuwise vms") from None


@cache
def catalogue() -> Mapping[str, VmType]:
    """All VM types by name, cheapest first."""
    document = tomllib.loads(Path(__file__).with_name("vms.toml").read_text(encoding="utf-8"))
    vms = sorted(parse(document), key=lambda vm: (vm.usd_per_hour, vm.name))
    return MappingProxyType({vm.name: vm for vm in vms})


def parse(document: dict[str, Any]) -> Iterator[VmType]:
    """The VM types of the price lists in a document."""
    for listed in document["lists"]:
        for name, row in listed["vms"].items():
            # A row ends early where there is no spot price.
            figures = dict(zip(document["columns"], row, strict=False))
            memory_bytes = figures.pop("memory_gib") * _GIB
            yield VmType(
                name=name, cloud=listed["cloud"], source=listed["source"], memory_bytes=memory_bytes, **figures
            )


def _cloud(name: str) -> str:
    known = sorted({vm.cloud for vm in catalogue().values()})
    if name.casefold() not in known:
        raise UnknownNameError("cloud", name, known)
    return name.casefold()


@cache
def _by_key() -> Mapping[str, VmType]:
    return {_key(vm.name): vm for vm in catalogue().values()}


def _key(name: str) -> str:
    """A name without case, separators and Azure's prefix, so that its spellings compare equal."""
    return re.sub(r"[^a-z0-9]", "", name.casefold()).removeprefix(_PREFIX)


def _names_like(name: str) -> list[str]:
    """All names, without the prefix where the one asked for has none: it would make every Azure size look far away."""
    if name.casefold().startswith(_PREFIX):
        return list(catalogue())
    return [re.sub(rf"(?i)^{_PREFIX}_", "", known) for known in catalogue()]
