"""The catalogue of GPU types: look one up by any of its names, and ask where a figure comes from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpuwise.core.errors import UnknownNameError

_GIB = 2**30
_GIGA = 10**9

# Written in datasheet units in gpus.toml, kept in base units here.
_IN_DATASHEET_UNITS = {
    "memory_gib": ("memory_bytes", _GIB),
    "memory_bandwidth_gb_per_s": ("memory_bandwidth_bytes_per_s", _GIGA),
    "gpu_link_gb_per_s": ("gpu_link_bytes_per_s", _GIGA),
}

_BRANDS = ("nvidia", "tesla", "geforce", "quadro", "amd", "instinct")

# One direction of one lane after 8b/10b (gen 1, 2) or 128b/130b line coding; FLIT mode (gen 6) without its overhead.
_PCIE_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 8e9}
_PCIE_LANES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A kind of GPU as a scheduler sees it: one allocatable device, its peaks, its power and its price.

    A figure is None where its maker did not publish it. Rates are peaks at the boost clock without sparsity; the
    ``*_tensor_tflops`` are those of matrix units with FP32 accumulation. ``usd_per_hour`` is the cheapest cloud VM on
    demand, divided by its GPUs. On AMD ``sms`` counts compute units.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = "undisclosed"
    architecture: str | None = None
    compute_capability: str | None = None
    release: str | None = None
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    sms: int | None = None
    boost_clock_mhz: float | None = None
    fp64_tflops: float | None = None
    fp32_tflops: float | None = None
    fp16_tflops: float | None = None
    tf32_tensor_tflops: float | None = None
    fp16_tensor_tflops: float | None = None
    bf16_tensor_tflops: float | None = None
    fp8_tensor_tflops: float | None = None
    int8_tops: float | None = None
    tdp_watts: float | None = None
    pcie_gen: int | None = None
    gpu_link_bytes_per_s: float | None = None
    mig: bool = False
    usd_per_hour: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def source_of(self, figure: str) -> str | None:
        """Where a figure comes from, in words; None where the figure itself is unknown."""
        if figure not in _FIGURES:
            raise UnknownNameError("figure of a GPU type", figure, _FIGURES)
        return None if getattr(self, figure) is None else self.sources.get(figure, self.sources["default"])

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """Bandwidth to the host in one direction, over all 16 lanes."""
        return None if self.pcie_gen is None else _PCIE_LANES * _PCIE_LANE_BYTES_PER_S[self.pcie_gen]


_FIGURES = tuple(f.name for f in fields(GpuType) if f.name not in {"name", "aliases", "sources"})


@cache
def gpu_types() -> Mapping[str, GpuType]:
    """All GPU types by name, oldest first; those without a known release come last."""
    document = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))
    types = [_parse(name, entry, document["sources"]) for name, entry in document["gpus"].items()]
    types.sort(key=lambda gpu: gpu.release or "9999")
    return MappingProxyType({gpu.name: gpu for gpu in types})


def gpu_type(name: str) -> GpuType:
    """The GPU type of that name or alias, whatever its case and separators: ``rtx 2080 ti``, ``Tesla-V100``.

    A maker's or family's name in front and a remark in parentheses do not matter: ``NVIDIA A100-SXM4-40GB (400W)``.
    """
    try:
        return _by_key()[spelling_key(name)]
    except KeyError:
        raise UnknownNameError("GPU type", name, gpu_types(), "gpuwise gpus") from None


def _parse(name: str, entry: dict[str, Any], texts: dict[str, str]) -> GpuType:
    sources = {_figure(key): texts[source] for key, source in entry.pop("source").items()}
    aliases = tuple(entry.pop("aliases", ()))
    figures = {_figure(key): _in_base_units(key, value) for key, value in entry.items()}
    return GpuType(name=name, aliases=aliases, sources=MappingProxyType(sources), **figures)


def _figure(key: str) -> str:
    return _IN_DATASHEET_UNITS[key][0] if key in _IN_DATASHEET_UNITS else key


def _in_base_units(key: str, value: Any) -> Any:
    return round(value * _IN_DATASHEET_UNITS[key][1]) if key in _IN_DATASHEET_UNITS else value


@cache
def _by_key() -> Mapping[str, GpuType]:
    return {spelling_key(alias): gpu for gpu in gpu_types().values() for alias in (gpu.name, *gpu.aliases)}


def spelling_key(name: str) -> str:
    """A name without case, separators, remarks and leading brands, so that its spellings compare equal."""
    key = re.sub(r"\([^)]*\)|[^a-z0-9(]", "", name.casefold())
    while brand := next((brand for brand in _BRANDS if key.startswith(brand)), None):
        key = key.removeprefix(brand)
    return key
