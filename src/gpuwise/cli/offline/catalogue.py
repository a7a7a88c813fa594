"""``gpus``, ``vms``, ``policies`` and ``formats``: what there is to choose from."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from gpuwise.cli.options import OutputOption
from gpuwise.cli.show.tables import show

COLUMNS = (
    "name", "architecture", "release", "memory_bytes", "fp32_tflops", "fp16_tensor_tflops", "bandwidth_gb_per_s", "sms",
    "usd_per_hour", "mig",
)  # fmt: skip
VM_COLUMNS = (
    "name", "cloud", "gpu", "gpus", "vcpus", "memory_bytes", "usd_per_hour", "usd_per_gpu_hour", "usd_per_hour_spot",
    "region",
)  # fmt: skip


def gpus_command(
    names: Annotated[list[str] | None, typer.Argument(help="GPU types; all by default.")] = None,
    mig: Annotated[bool, typer.Option("--mig", help="Show the MIG profiles and where their slices may start.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Show where each figure comes from.")] = False,
    output: OutputOption = None,
) -> None:
    """List GPU types with their figures, or with their MIG profiles."""
    from gpuwise.service.offline.catalogue import gpus, mig_profiles

    chosen = gpus(names or ())
    if mig:
        profiles = [(gpu.name, profile) for gpu in chosen if gpu.mig for profile in mig_profiles(gpu.name)]
        show([{"gpu": name, **asdict(profile)} for name, profile in profiles], output)
    elif sources:
        show([row for gpu in chosen for row in _sources(gpu)], output)
    else:
        show([_figures(gpu) for gpu in chosen], output, COLUMNS)


def vms_command(
    names: Annotated[list[str] | None, typer.Argument(help="VM types; all by default.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only those with these GPU types: V100,A100.")] = None,
    cloud: Annotated[str | None, typer.Option(help="Only those of these clouds: aws,azure.")] = None,
    gpus_at_least: Annotated[int, typer.Option(min=1, help="Only those with at least this number of GPUs.")] = 1,
    output: OutputOption = None,
) -> None:
    """List VM types with GPUs and their prices, cheapest first."""
    from gpuwise.service.offline.catalogue import vms

    chosen = vms(names or (), gpus=_parts(gpu), clouds=_parts(cloud), gpus_at_least=gpus_at_least)
    rows = [{**{name: getattr(vm, name) for name in VM_COLUMNS}, "source": vm.source} for vm in chosen]
    show(rows, output, VM_COLUMNS)


def policies_command(output: OutputOption = None) -> None:
    """List the policies and placements that are installed."""
    from gpuwise.service.offline.catalogue import policies

    show(policies(), output)


def formats_command(output: OutputOption = None) -> None:
    """List the trace formats and generators."""
    from gpuwise.service.offline.catalogue import formats

    show(formats(), output)


def _parts(text: str | None) -> list[str]:
    return [part for part in (text or "").split(",") if part]


def _figures(gpu: Any) -> dict[str, Any]:
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    figures = {each.name: getattr(gpu, each.name) for each in fields(gpu) if each.name != "sources"}
    return {**figures, "bandwidth_gb_per_s": None if bandwidth is None else bandwidth / 1e9}


def _sources(gpu: Any) -> list[dict[str, Any]]:
    return [
        {"gpu": gpu.name, "figure": name, "value": value, "source": gpu.source_of(name)}
        for name, value in ((each.name, getattr(gpu, each.name)) for each in fields(gpu))
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
