"""``top``: the use of the devices, with a bar for each, and the jobs on them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.options import OutputOption, Server
from gpuwise.cli.show.jobs import Job, progress_frac, short_name, status_word
from gpuwise.cli.show.tables import cell, listing
from gpuwise.cli.show.watch import watch
from gpuwise.core.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Device = Mapping[str, Any]

COLUMNS = ("device", "type", "use_frac", "memory", "free_frac", "jobs")
DROP = ("type", "free_frac", "memory")
EVERY_S = 1.0
_FULL, _EMPTY = "█", "░"
_NEARLY_FULL = 0.9
_WIDE_TERMINAL = 110


def top_command(
    once: Annotated[bool, typer.Option("--once", help="Show it once, as a list.")] = False,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="How often it is updated.")] = EVERY_S,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Watch the use of the devices, and the jobs on them."""

    def fetch() -> dict[str, Any]:
        answer: dict[str, Any] = server.connect().get("top")
        return answer

    if once or output is not None or not sys.stdout.isatty():
        listing(devices_of(fetch()), output, _as_shown, COLUMNS, drop=DROP, nothing="no devices")
        return

    def drawn(top: dict[str, Any]) -> RenderableType:
        return draw(devices_of(top), top["jobs"], get_terminal_size().columns)

    watch(fetch, drawn, every)


def devices_of(top: dict[str, Any]) -> list[Device]:
    """The devices of all nodes, each with its node's name."""
    return [{"node": node["name"], **device} for node in top["nodes"] for device in node["devices"]]


def _as_shown(device: Device) -> dict[str, Any]:
    return {
        "device": f"{device['node']}:{device['index']}",
        "type": device["name"],
        "use_frac": device["util_frac"],
        "memory": memory_text(device),
        "free_frac": device["free_frac"],
        "jobs": "lost" if device["lost"] else jobs_text(device),
        "sharing": device["sharing"],
        "power_w": device["power_w"],
        "temperature_c": device["temperature_c"],
    }


def draw(devices: Sequence[Device], jobs: Sequence[Job], width: int) -> RenderableType:
    """Devices above, the jobs on them below, for a terminal of ``width`` columns."""
    from rich.console import Group

    wide = width >= _WIDE_TERMINAL
    tables = [_devices(devices, wide), *([_jobs(jobs, wide)] if jobs else [])]
    return Group(*tables)


def _devices(devices: Sequence[Device], wide: bool) -> Table:
    from rich.text import Text

    table, width = _table("device", *(("type",) if wide else ()), "use", "memory", "jobs"), 20 if wide else 8
    for device in devices:
        used, size = device["memory_used_bytes"], device["memory_bytes"]
        part = used / size if used is not None and size else None
        table.add_row(
            f"{device['node']}:{device['index']}",
            *((device["name"],) if wide else ()),
            bar(device["util_frac"], width, "cyan"),
            bar(part, width, "red" if part and part > _NEARLY_FULL else "blue", memory_text(device)),
            "lost" if device["lost"] else Text(jobs_text(device) or "idle"),
        )
    return table


def _jobs(jobs: Sequence[Job], wide: bool) -> Table:
    from rich.text import Text

    table = _table("job", "name", "status", "progress", "loss", *(("speed", "GPU time") if wide else ()))
    for job in jobs:
        loss, speed = job["loss"], job["samples_per_s"]
        more = ("-" if speed is None else f"{cell('speed', speed)} samples/s", format_duration(job["gpu_s"]))
        table.add_row(
            job["id"],
            Text(short_name(job)),
            status_word(job),
            bar(progress_frac(job), 20 if wide else 8, "green"),
            "-" if loss is None else f"{loss:.4g}",
            *(more if wide else ()),
        )
    return table


def bar(part: float | None, width: int, colour: str, text: str | None = None) -> Text:
    """A part of one as a bar, with its figure."""
    from rich.text import Text

    if part is None:
        return Text(text or "-", style="dim")
    full = round(min(1.0, max(0.0, part)) * width)
    figure = f" {100 * part:3.0f} %" if text is None else f" {text}"
    return Text.assemble((_FULL * full, colour), (_EMPTY * (width - full), "dim"), figure)


def memory_text(device: Device) -> str:
    """How much of a device's memory is used."""
    size = "" if device["memory_bytes"] is None else format_bytes(device["memory_bytes"])
    used = device["memory_used_bytes"]
    return size if used is None else f"{format_bytes(used)} of {size}"


def jobs_text(device: Device) -> str:
    """The jobs on a device, each with its part of it."""
    return ", ".join(
        (f"{job['id']} {job['name']}".strip() if job["id"] else "another user's")
        + (f" ({100 * job['frac']:.0f} %)" if job["frac"] < 1 else "")
        for job in device["jobs"]
    )


def _table(*columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name != columns[-1])
    return table
