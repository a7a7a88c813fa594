"""``gpus`` and ``vms``: the catalogues of GPU types with their MIG profiles, and of VM types with their prices."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from gpuwise.cli.show.output import Output, show

COLUMNS = (
    "name",
    "architecture",
    "release",
    "memory_bytes",
    "fp32_tflops",
    "fp16_tensor_tflops",
    "bandwidth_gb_per_s",
    "sms",
    "usd_per_hour",
    "mig",
)
VM_COLUMNS = (
    "name",
    "cloud",
    "gpu",
    "gpus",
    "vcpus",
    "memory_bytes",
    "usd_per_hour",
    "usd_per_gpu_hour",
    "usd_per_hour_spot",
    "region",
)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("gpus")(gpus_command)
    app.command("vms")(vms_command)


def gpus_command(
    names: Annotated[list[str] | None, typer.Argument(help="GPU types; all by default.")] = None,
    mig: Annotated[bool, typer.Option("--mig", help="Show the MIG profiles and where their slices may start.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Show where each figure comes from.")] = False,
    output: Annotated[Output | None, typer.Option("-o", "--output", help="table, wide, json or csv.")] = None,
) -> None:
    """List GPU types with their figures, or the MIG profiles of those that have them."""
    from gpuwise.devices.catalogue import gpu_type, gpu_types

    chosen = [gpu_type(name) for name in names] if names else list(gpu_types().values())
    if mig:
        show([row for gpu in chosen if gpu.mig for row in _profiles(gpu)], output)
    elif sources:
        show([row for gpu in chosen for row in _sources(gpu)], output)
    else:
        show([_figures(gpu) for gpu in chosen], output, COLUMNS)


def vms_command(
    names: Annotated[list[str] | None, typer.Argument(help="VM types; all by default.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only those with these GPU types: V100,A100.")] = None,
    cloud: Annotated[str | None, typer.Option(help="Only those of these clouds: aws,azure.")] = None,
    gpus_at_least: Annotated[int, typer.Option(min=1, help="Only those with so many GPUs or more.")] = 1,
    output: Annotated[Output | None, typer.Option("-o", "--output", help="table, wide, json or csv.")] = None,
) -> None:
    """List VM types with GPUs and what they cost by the hour, cheapest first."""
    from gpuwise.devices.vms import vm_type, vm_types

    wanted = {vm_type(name).name for name in names or ()} or set(vm_types())
    wanted &= {name for each in _parts(gpu) for name in vm_types(gpu=each)}
    wanted &= {name for each in _parts(cloud) for name in vm_types(cloud=each)}
    chosen = [vm for vm in vm_types().values() if vm.name in wanted and vm.gpus >= gpus_at_least]
    show([_offer(vm) for vm in chosen], output, VM_COLUMNS)


def _parts(text: str | None) -> list[str | None]:
    """The parts of a list with commas; a None that stands for all where there are none."""
    return [part for part in (text or "").split(",") if part] or [None]


def _offer(vm: Any) -> dict[str, Any]:
    return {**{name: getattr(vm, name) for name in VM_COLUMNS}, "source": vm.source}


def _figures(gpu: Any) -> dict[str, Any]:
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    figures = {each.name: getattr(gpu, each.name) for each in fields(gpu) if each.name != "sources"}
    return {**figures, "bandwidth_gb_per_s": None if bandwidth is None else bandwidth / 1e9}


def _profiles(gpu: Any) -> list[dict[str, Any]]:
    from gpuwise.devices.mig import mig_profiles

    return [{"gpu": gpu.name, **asdict(profile)} for profile in mig_profiles(gpu.name)]


def _sources(gpu: Any) -> list[dict[str, Any]]:
    return [
        {"gpu": gpu.name, "figure": name, "value": value, "source": gpu.source_of(name)}
        for name, value in ((each.name, getattr(gpu, each.name)) for each in fields(gpu))
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
