"""Lines of the journal in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuwise.core.commands import Placement
from gpuwise.core.units import format_bytes, format_duration
from gpuwise.engine.journal import placement_of

NOISE = frozenset(("WokeUp", "JobProgressed", "JobNoted"))
"""Kinds that say nothing to people."""

Body = Mapping[str, Any]
Names = Sequence[str] | Mapping[str, str]
"""The nodes' names, by row; as text in a line that carries its own."""


def tell(kind: str, body: Body, names: Names) -> str:
    """A line in words; a kind that is not known here by its name.

    ``names`` are those of the nodes now, for lines of versions that did not write them.
    """
    words = _WORDS.get(kind)
    return words(body, body.get("names", names)) if words is not None else kind


def _where(body: Body, names: Names) -> str:
    placement: Placement = placement_of(body["placement"])
    parts = [", ".join(f"{_node(node, names)}:{device}" for node, device in placement.devices())]
    parts += [f"{number} {role} on {_node(node, names)}" for role, node, number in placement.tasks]
    return ", ".join(filter(None, parts)) or "no device"


def _node(node: int | str, names: Names) -> str:
    if isinstance(node, str):
        return node
    if isinstance(names, Mapping):
        return names.get(str(node), f"node {node}")
    return names[node] if 0 <= node < len(names) else f"node {node}"


def _device(body: Body, names: Names) -> str:
    return f"device {body['device']} of node {_node(body['node'], names)}"


def _failed(body: Body, names: Names) -> str:
    return f"failed: {body['cause']}" + ("; will be tried again" if body["will_retry"] else "")


def _revised(body: Body, names: Names) -> str:
    parts = []
    if body.get("duration_s") is not None:
        parts.append(f"run time {format_duration(body['duration_s'])}")
    if body.get("gpu_memory_bytes") is not None:
        parts.append(f"memory {format_bytes(body['gpu_memory_bytes'])}")
    if body.get("gpu_util_frac") is not None:
        parts.append(f"{100 * body['gpu_util_frac']:.0f}% of a GPU's time")
    return "is now believed to need " + " and ".join(parts or ["something else"])


def _changed(body: Body) -> str:
    node = body["node"]
    takes = "" if node.get("schedulable", True) else ", drained"
    return f"node {node['name']} is now {node['gpus']} × {node['gpu_type']}{takes}"


def _claimed(body: Body) -> str:
    uses = [f"{format_bytes(memory)} of device {device}" for device, memory, _ in body["devices"] if memory]
    uses += [f"device {device}" for device, memory, _ in body["devices"] if not memory]
    uses += [f"{body['cpus']:g} CPUs"] if body["cpus"] else []
    uses += [f"{format_bytes(body['memory_bytes'])} of memory"] if body["memory_bytes"] else []
    return f"others use {', '.join(uses) or 'nothing'} on node {body['node']}"


_WORDS: Mapping[str, Callable[[Body, Names], str]] = {
    "JobSubmitted": lambda body, names: "was submitted",
    "JobStarted": lambda body, names: "runs",
    "JobSuspended": lambda body, names: "has left its GPUs and waits to go on",
    "JobFinished": lambda body, names: "has succeeded",
    "JobFailed": _failed,
    "StartRefused": lambda body, names: f"its start was refused: {body['cause']}; it is tried again later",
    "BackOffEnded": lambda body, names: "is in line again",
    "JobCancelled": lambda body, names: "was cancelled",
    "JobHeld": lambda body, names: f"is held back ({body['cause']})",
    "JobReleased": lambda body, names: "is in line",
    "JobRevised": _revised,
    "NodeAdded": lambda body, names: f"node {body['node']['name']} joined",
    "NodeChanged": lambda body, names: _changed(body),
    "NodeRemoved": lambda body, names: f"node {_node(body['node'], names)} was removed",
    "ReleaseRefused": lambda body, names: f"node {_node(body['node'], names)} cannot be released; it is in service",
    "NodeLost": lambda body, names: f"node {_node(body['node'], names)} is lost",
    "NodeRestored": lambda body, names: f"node {_node(body['node'], names)} is back",
    "DeviceLost": lambda body, names: f"{_device(body, names)} is lost",
    "DeviceRestored": lambda body, names: f"{_device(body, names)} is back",
    "DevicesClaimed": lambda body, names: _claimed(body),
    "Start": lambda body, names: f"starts on {_where(body, names)}",
    "Resume": lambda body, names: f"resumed on {_where(body, names)}",
    "Suspend": lambda body, names: "is asked to leave its GPUs",
    "Stop": lambda body, names: "is being ended",
    "Resize": lambda body, names: f"is resized to {_where(body, names)}",
    "Migrate": lambda body, names: f"moves to {_where(body, names)}",
    "Rearrange": lambda body, names: f"{len(body['moves'])} jobs change places",
    "Repartition": lambda body, names: f"{_device(body, names)} is cut into {len(body['slices']) or 'no'} slices",
    "Provision": lambda body, names: f"node {body['node']['name']} is asked for",
    "Release": lambda body, names: f"node {_node(body['node'], names)} is released",
}
