"""Lines of the journal in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuwise.core.commands import Placement
from gpuwise.core.units import format_bytes, format_duration
from gpuwise.engine.journal import placement_of

NOISE = frozenset(("WokeUp", "JobProgressed"))
"""Kinds that say nothing to people."""

Body = Mapping[str, Any]
Names = Sequence[str]
"""The nodes' names, by number."""


def tell(kind: str, body: Body, names: Names) -> str:
    """A line in words; a kind that is not known here by its name."""
    words = _WORDS.get(kind)
    return words(body, names) if words is not None else kind


def _where(body: Body, names: Names) -> str:
    placement: Placement = placement_of(body["placement"])
    return ", ".join(f"{_node(node, names)}:{device}" for node, device in placement.devices()) or "no device"


def _node(node: int, names: Names) -> str:
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


_WORDS: Mapping[str, Callable[[Body, Names], str]] = {
    "JobSubmitted": lambda body, names: "was submitted",
    "JobStarted": lambda body, names: "runs",
    "JobSuspended": lambda body, names: "has left its GPUs and waits to go on",
    "JobFinished": lambda body, names: "has succeeded",
    "JobFailed": _failed,
    "JobCancelled": lambda body, names: "was cancelled",
    "JobHeld": lambda body, names: f"is held back ({body['cause']})",
    "JobReleased": lambda body, names: "is in line",
    "JobRevised": _revised,
    "NodeAdded": lambda body, names: f"node {body['node']['name']} has come",
    "NodeLost": lambda body, names: f"node {_node(body['node'], names)} is lost",
    "NodeRestored": lambda body, names: f"node {_node(body['node'], names)} is back",
    "DeviceLost": lambda body, names: f"{_device(body, names)} is lost",
    "DeviceRestored": lambda body, names: f"{_device(body, names)} is back",
    "Start": lambda body, names: f"starts on {_where(body, names)}",
    "Resume": lambda body, names: f"goes on on {_where(body, names)}",
    "Suspend": lambda body, names: "is asked to leave its GPUs",
    "Stop": lambda body, names: "is being ended",
    "Resize": lambda body, names: f"is resized to {_where(body, names)}",
    "Migrate": lambda body, names: f"moves to {_where(body, names)}",
    "Rearrange": lambda body, names: f"{len(body['moves'])} jobs change places",
    "Repartition": lambda body, names: f"{_device(body, names)} is cut into {len(body['slices']) or 'no'} slices",
    "Provision": lambda body, names: f"node {body['node']['name']} is asked for",
    "Release": lambda body, names: f"node {_node(body['node'], names)} is given back",
}
