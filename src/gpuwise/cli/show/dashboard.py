"""The picture that ``top`` draws: bars for devices, and the jobs on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuwise.cli.show.jobs import Job, called, progress_frac, status_word
from gpuwise.cli.show.output import cell
from gpuwise.core.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Device = Mapping[str, Any]

_FULL, _EMPTY = "█", "░"
_NEARLY_FULL = 0.9
_WIDE_TERMINAL = 110


def draw(devices: Sequence[Device], jobs: Sequence[Job], terminal: int) -> RenderableType:
    """Devices above, the jobs on them below, for a terminal of so many columns."""
    from rich.console import Group

    wide = terminal >= _WIDE_TERMINAL
    tables = [_devices(devices, wide), *([_jobs(jobs, wide)] if jobs else [])]
    return Group(*tables)


def _devices(devices: Sequence[Device], wide: bool) -> Table:
    table, width = _table("device", *(("type",) if wide else ()), "use", "memory", "who is on it"), 20 if wide else 8
    for device in devices:
        used, size = device["memory_used_bytes"], device["memory_bytes"]
        part = used / size if used is not None and size else None
        table.add_row(
            f"{device['node']}:{device['index']}",
            *((device["name"],) if wide else ()),
            bar(device["util_frac"], width, "cyan"),
            bar(part, width, "red" if part and part > _NEARLY_FULL else "blue", memory_text(device)),
            "lost" if device["lost"] else residents_text(device) or "idle",
        )
    return table


def _jobs(jobs: Sequence[Job], wide: bool) -> Table:
    table = _table("job", "name", "status", "progress", "loss", *(("speed", "GPU time") if wide else ()))
    for job in jobs:
        loss, speed = job["loss"], job["samples_per_s"]
        more = ("-" if speed is None else f"{cell('speed', speed)} samples/s", format_duration(job["gpu_s"]))
        table.add_row(
            job["id"],
            called(job),
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
    """What is used of a device's memory."""
    size = "" if device["memory_bytes"] is None else format_bytes(device["memory_bytes"])
    used = device["memory_used_bytes"]
    return size if used is None else f"{format_bytes(used)} of {size}"


def residents_text(device: Device) -> str:
    """Who is on a device, and with what part of it."""
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
