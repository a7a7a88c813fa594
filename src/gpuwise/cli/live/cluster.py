"""``nodes`` and ``status``: the nodes of the cluster, and the service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpuwise.cli.options import OutputOption, Server
from gpuwise.cli.show.tables import is_for_people, listing, print_facts
from gpuwise.cli.show.times import moment
from gpuwise.core.units import format_bytes, format_duration

COLUMNS = ("node", "type", "gpus", "free_gpus", "free_cpus", "free_memory_bytes", "state", "labels", "others", "jobs")
DROP = ("labels", "others", "free_memory_bytes", "free_cpus", "jobs")

NodeArgument = Annotated[str, typer.Argument(metavar="NAME", help="A node.")]


def nodes_command(ctx: typer.Context, *, server: Server, output: OutputOption = None) -> None:
    """List the nodes and the jobs on them; drain and undrain them."""
    if ctx.invoked_subcommand is None:
        listing(server.connect().get("nodes")["nodes"], output, _node, COLUMNS, drop=DROP, nothing="no nodes")


def drain_command(node: NodeArgument, *, server: Server) -> None:
    """Start no more jobs on a node (admin); running ones stay."""
    server.connect().post("nodes", node, "drain")
    print(f"node {node} takes no new jobs")


def undrain_command(node: NodeArgument, *, server: Server) -> None:
    """Let jobs start on a drained node again (admin)."""
    server.connect().post("nodes", node, "undrain")
    print(f"node {node} takes jobs again")


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
        "state": _state(node, lost),
        "labels": ", ".join(f"{key}={value}" for key, value in node["labels"].items()),
        "others": _others(node),
        "jobs": ", ".join(ids),
        "cpus": node["cpus"],
        "memory_bytes": node["memory_bytes"],
    }


def _state(node: Any, lost: int) -> str:
    up = "lost" if node["lost"] else f"{lost} GPUs lost" if lost else "up"
    return f"{up}, drained" if node["drained"] else up


def _others(node: Any) -> str:
    """What foreign processes use."""
    parts = [
        f"GPU {device['index']}" + (f": {format_bytes(used)}" if (used := device["claimed_memory_bytes"]) else "")
        for device in node["devices"]
        if device["claimed"] or device["claimed_memory_bytes"]
    ]
    parts += [f"{node['claimed_cpus']:g} CPUs"] if node["claimed_cpus"] else []
    parts += [format_bytes(node["claimed_memory_bytes"])] if node["claimed_memory_bytes"] else []
    return ", ".join(parts)


def status_command(*, server: Server, output: OutputOption = None) -> None:
    """Show how the service is, and who you are to it."""
    client = server.connect()
    status = {"url": client.target.url, **client.get("status")}
    if is_for_people(output):
        print_facts(_facts(status))
    else:
        listing([status], output, dict, ())


def _switching(status: dict[str, Any]) -> str:
    """What switching between time-sliced jobs has cost; empty if there were none."""
    if not (switches := status.get("switches")):  # a server of the version before does not say
        return ""
    return f"{switches} switches have cost {format_duration(status['switching_s'])}"


def _facts(status: dict[str, Any]) -> dict[str, str]:
    counts = ", ".join(f"{count} {name}" for name, count in status["counts"].items())
    return {
        "server": f"{status['url']}, gpuwise {status['version']}",
        "you are": f"{status['user']} ({status['role']})",
        "policy": f"{status['policy']}, placement {status['placement']}",
        "jobs": counts or "none that run or wait",
        "store": status["store"],
        "up since": moment(status["started_at"]),
        "time slices": _switching(status),
        "trouble": status["trouble"] or "none",
        "notes": "; ".join(status["notes"]),
    }
