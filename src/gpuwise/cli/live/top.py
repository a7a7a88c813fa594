"""``top``: what the devices do, and who is on them."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.live import options
from gpuwise.cli.live.options import OutputOption, ServerOption, StateOption

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("device", "type", "use_frac", "memory", "free_frac", "jobs")
DROP = ("type", "free_frac", "memory")
EVERY_S = 1.0


def register(app: typer.Typer) -> None:
    """Adds the command."""
    options.add(app, "top", top_command)


def top_command(
    once: Annotated[bool, typer.Option("--once", help="Show it once, as a list.")] = False,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="How often to look.")] = EVERY_S,
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """Watch what the devices do, and who is on them."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.tables import listing

    def fetch() -> dict[str, Any]:
        answer: dict[str, Any] = connect(server, state).get("top")
        return answer

    if once or output is not None or not sys.stdout.isatty():
        listing(devices_of(fetch()), output, _as_shown, COLUMNS, drop=DROP, nothing="no devices")
        return
    from gpuwise.cli.show.dashboard import draw
    from gpuwise.cli.show.watch import watch

    def drawn(top: dict[str, Any]) -> RenderableType:
        return draw(devices_of(top), top["jobs"], get_terminal_size().columns)

    watch(fetch, drawn, every)


def devices_of(top: dict[str, Any]) -> list[dict[str, Any]]:
    """The devices of all nodes, each with its node's name."""
    return [{"node": node["name"], **device} for node in top["nodes"] for device in node["devices"]]


def _as_shown(device: Any) -> dict[str, Any]:
    from gpuwise.cli.show.dashboard import memory_text, residents_text

    return {
        "device": f"{device['node']}:{device['index']}",
        "type": device["name"],
        "use_frac": device["util_frac"],
        "memory": memory_text(device),
        "free_frac": device["free_frac"],
        "jobs": "lost" if device["lost"] else residents_text(device),
        "sharing": device["sharing"],
        "power_w": device["power_w"],
        "temperature_c": device["temperature_c"],
    }
