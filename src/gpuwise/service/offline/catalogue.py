"""What is at hand: GPU and VM types, policies and placements, trace formats and generators, measured data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuwise.core.errors import GpuwiseError
from gpuwise.devices.catalogue import GpuType, gpu_type, gpu_types
from gpuwise.devices.mig import mig_profiles
from gpuwise.devices.vms import VmType, vm_type, vm_types

__all__ = ["data_dir", "formats", "gpus", "mig_profiles", "policies", "vms"]

Rows = list[dict[str, Any]]


def gpus(names: Sequence[str] = ()) -> list[GpuType]:
    """GPU types by name or alias, or all."""
    return [gpu_type(name) for name in names] if names else list(gpu_types().values())


def vms(
    names: Sequence[str] = (), *, gpus: Sequence[str] = (), clouds: Sequence[str] = (), gpus_at_least: int = 1
) -> list[VmType]:
    """VM types by name, or all; of some GPU types and of some clouds if these are given. Cheapest first."""
    wanted = {vm_type(name).name for name in names} or set(vm_types())
    wanted &= {name for each in gpus or (None,) for name in vm_types(gpu=each)}
    wanted &= {name for each in clouds or (None,) for name in vm_types(cloud=each)}
    return [vm for vm in vm_types().values() if vm.name in wanted and vm.gpus >= gpus_at_least]


def policies() -> Rows:
    """Every policy and placement that is installed, with what it does and its parameters."""
    from gpuwise.policies.placing.placers import PLACERS
    from gpuwise.policies.registry import describe, parameters

    rows = [("policy", name, what, _parameters(parameters(name))) for name, what in describe().items()]
    rows += [("placement", name, what, "") for name, (what, _) in PLACERS.items()]
    return [dict(zip(("kind", "name", "what", "parameters"), row, strict=True)) for row in rows]


def _parameters(given: dict[str, Any]) -> str:
    """Parameters as they are written after a policy's name."""
    return " ".join(f"{name}={_word(value)}" for name, value in given.items())


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(f"{each:g}" for each in value) if isinstance(value, tuple) else str(value)


def formats() -> Rows:
    """The trace formats that can be read, and the generators of synthetic traces."""
    from gpuwise.sim.traces.files import FORMATS
    from gpuwise.sim.traces.generate import GENERATORS

    rows = [("format", each.name, each.description) for each in FORMATS.values()]
    rows += [("generator", f"gen:{name}", generator.description) for name, generator in GENERATORS.items()]
    return [dict(zip(("kind", "name", "what"), row, strict=True)) for row in rows]


def data_dir() -> Path:
    """The folder of measured data: ``GPUWISE_DATA``, else ``../shared/data`` beside the project."""
    given = os.environ.get("GPUWISE_DATA")
    beside = (Path.cwd().parent, Path(__file__).resolve().parents[5])
    candidates = [Path(given)] if given else [root / "shared" / "data" for root in beside]
    for path in candidates:
        if path.is_dir():
            return path
    raise GpuwiseError(f"no measured data at {candidates[0]}; set GPUWISE_DATA to their folder")
