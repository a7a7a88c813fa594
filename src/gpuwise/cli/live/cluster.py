"""``nodes`` and ``status``: the machines and the service."""

from __future__ import annotations

from typing import Any

import typer

from gpuwise.cli.live import options
from gpuwise.cli.live.options import OutputOption, ServerOption, StateOption

COLUMNS = ("node", "type", "gpus", "free_gpus", "free_cpus", "free_memory_bytes", "state", "jobs")
DROP = ("free_memory_bytes", "free_cpus", "jobs")


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    options.add(app, "nodes", nodes_command)
    options.add(app, "status", status_command)


def nodes_command(server: ServerOption = None, state: StateOption = None, output: OutputOption = None) -> None:
    """List the machines, what is free, and who is on them."""
    from gpuwise.cli.live.client import connect
    from gpuwise.cli.live.tables import listing

    listing(connect(server, state).get("nodes")["nodes"], output, _node, COLUMNS, drop=DROP, nothing="no nodes")


def _node(node: Any) -> dict[str, Any]:
    devices = node["devices"]
    lost = sum(device["lost"] for device in devices)
    ids = dict.fromkeys(job["id"] or "another user's" for device in devices for job in device["jobs"])
    return {
        "node": node["name"],
        "type": node["gpu_type"] + (" (stand-in)" if node["stand_in"] else ""),
        "gpus": len(devices),
        "free_gpus": round(sum(device["free_frac"] for device in devices), 3),
        "free_cpus": node["free_cpus"],
        "free_memory_bytes": node["free_memory_bytes"],
        "state": "lost" if node["lost"] else f"{lost} GPUs lost" if lost else "up",
        "jobs": ", ".join(ids),
        "cpus": node["cpus"],
        "memory_bytes": node["memory_bytes"],
    }


def status_command(server: ServerOption = None, state: StateOption = None, output: OutputOption = None) -> None:
    """Show how the service is, and who you are to it."""
    from gpuwise.cli.live.client import connect
    from gpuwise.cli.live.tables import is_for_people, listing, print_facts

    client = connect(server, state)
    status = {"url": client.target.url, **client.get("status")}
    if is_for_people(output):
        print_facts(_facts(status))
    else:
        listing([status], output, dict, ())


def _facts(status: dict[str, Any]) -> dict[str, str]:
    from gpuwise.cli.live.times import both

    counts = ", ".join(f"{count} {name}" for name, count in status["counts"].items())
    return {
        "server": f"{status['url']}, gpuwise {status['version']}",
        "you are": f"{status['user']} ({status['role']})",
        "policy": f"{status['policy']}, placement {status['placement']}",
        "jobs": counts or "none that run or wait",
        "store": status["store"],
        "up since": both(status["started_at"]),
        "trouble": status["trouble"] or "none",
        "notes": "; ".join(status["notes"]),
    }
