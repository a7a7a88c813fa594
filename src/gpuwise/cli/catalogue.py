"""``gpus``: the catalogue of GPU types and MIG profiles."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from gpuwise.cli.output import Output, show

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


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("gpus")(gpus_command)


def gpus_command(
    names: Annotated[list[str] | None, typer.Argument(help="GPU types; all by default.")] = None,
    mig: Annotated[bool, typer.Option("--mig", help="Show the MIG profiles and where their slices may start.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Show where each figure comes from.")] = False,
    output: Annotated[Output | None, typer.Option("-o", "--output", help="table, wide, json or csv.")] = None,
) -> None:
    """List GPU types with their figures, or the MIG profiles of those that have them."""
    from gpuwise.devices import gpu_type, gpu_types

    chosen = [gpu_type(name) for name in names] if names else list(gpu_types().values())
    if mig:
        show([row for gpu in chosen if gpu.mig for row in _profiles(gpu)], output)
    elif sources:
        show([row for gpu in chosen for row in _sources(gpu)], output)
    else:
        show([_figures(gpu) for gpu in chosen], output, COLUMNS)


def _figures(gpu: Any) -> dict[str, Any]:
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    figures = {each.name: getattr(gpu, each.name) for each in fields(gpu) if each.name != "sources"}
    return {**figures, "bandwidth_gb_per_s": None if bandwidth is None else bandwidth / 1e9}


def _profiles(gpu: Any) -> list[dict[str, Any]]:
    from gpuwise.devices import mig_profiles

    return [{"gpu": gpu.name, **asdict(profile)} for profile in mig_profiles(gpu.name)]


def _sources(gpu: Any) -> list[dict[str, Any]]:
    return [
        {"gpu": gpu.name, "figure": name, "value": value, "source": gpu.source_of(name)}
        for name, value in ((each.name, getattr(gpu, each.name)) for each in fields(gpu))
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
