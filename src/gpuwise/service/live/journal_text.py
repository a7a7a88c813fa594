"""Lines of the journal in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuwise.core.commands import Placement
from gpuwise.core.units import format_bytes, format_duration
from gpuwise.engine.journal import placement_of

NOT_SHOWN = frozenset(("WokeUp", "JobProgressed", "JobNoted"))
"""Kinds of records that mean nothing to people."""

Body = Mapping[str, Any]
Names = Sequence[str] | Mapping[str, str]
"""The nodes' names by row; as text in a line that has its own."""


def describe_record(kind: str, body: Body, names: Names) -> str:
    """An event or command in words; an unknown kind by its name.

    ``names`` are those of the nodes now, for lines of versions that did not write them.
    """
    words = _WORDS.get(kind, kind)
    return words if isinstance(words, str) else words(body, body.get("names", names))


def _where(body: Body, names: Names) -> str:
    placement: Placement = placement_of(body["placement"])
    parts = [", ".join(f"{_name(node, names)}:{device}" for node, device in placement.devices())]
    parts += [f"{number} {role} on {_name(node, names)}" for role, node, number in placement.tasks]
    return ", ".join(filter(None, parts)) or "no device"


def _name(node: int | str, names: Names) -> str:
    if isinstance(node, str):
        return node
    if isinstance(names, Mapping):
        return names.get(str(node), f"node {node}")
    return names[node] if 0 <= node < len(names) else f"node {node}"


def _node(body: Body, names: Names) -> str:
    return f"node {_name(body['node'], names)}"


def _device(body: Body, names: Names) -> str:
    return f"device {body['device']} of {_node(body, names)}"


def _failed(body: Body, names: Names) -> str:
    if body.get("kind") == "requeued":
        return f"was {body['cause']}"
    return f"failed: {body['cause']}" + ("; it will be retried" if body["will_retry"] else "")


def _held(body: Body, names: Names) -> str:
    by_user = "user" in body["cause"].split(",")
    return f"{'is on hold' if by_user else 'may not start yet'} ({body['cause']})"


def _revised(body: Body, names: Names) -> str:
    parts = []
    if body.get("duration_s") is not None:
        parts.append(f"run time {format_duration(body['duration_s'])}")
    if body.get("gpu_memory_bytes") is not None:
        parts.append(f"memory {format_bytes(body['gpu_memory_bytes'])}")
    if body.get("gpu_util_frac") is not None:
        parts.append(f"{100 * body['gpu_util_frac']:.0f}% of a GPU's time")
    asked = []
    if body.get("priority") is not None:
        asked.append(f"has priority {body['priority']} now")
    if body.get("deadline_s") is not None:
        asked.append("has no deadline now" if body["deadline_s"] == "inf" else "has another deadline now")
    if asked and not parts:
        return ", ".join(asked)
    return ": ".join(filter(None, ("has a new forecast", ", ".join(parts))))


def _changed(body: Body, names: Names) -> str:
    node = body["node"]
    drained = "" if node.get("schedulable", True) else ", drained"
    return f"node {node['name']} is now {node['gpus']} × {node['gpu_type']}{drained}"


def _claimed(body: Body, names: Names) -> str:
    uses = [f"{format_bytes(memory)} of device {device}" for device, memory, _ in body["devices"] if memory]
    uses += [f"device {device}" for device, memory, _ in body["devices"] if not memory]
    uses += [f"{body['cpus']:g} CPUs"] if body["cpus"] else []
    uses += [f"{format_bytes(body['memory_bytes'])} of memory"] if body["memory_bytes"] else []
    return f"foreign processes use {', '.join(uses) or 'nothing'} on node {body['node']}"


def _rearranged(body: Body, names: Names) -> str:
    moved = len(body["moves"])
    return f"{moved} job{'s are' if moved != 1 else ' is'} moved"


def _repartitioned(body: Body, names: Names) -> str:
    return f"{_device(body, names)} is partitioned into {len(body['slices']) or 'no'} MIG slices"


_WORDS: Mapping[str, str | Callable[[Body, Names], str]] = {
    "JobSubmitted": "was submitted",
    "JobStarted": "runs",
    "JobSuspended": "was suspended and has released its GPUs",
    "JobFinished": "has succeeded",
    "JobFailed": _failed,
    "StartRefused": lambda body, names: f"its start was refused: {body['cause']}; it will be retried",
    "BackOffEnded": "is in the queue again",
    "JobCancelled": "was cancelled",
    "JobHeld": _held,
    "JobReleased": "is in the queue",
    "JobRevised": _revised,
    "NodeAdded": lambda body, names: f"node {body['node']['name']} joined",
    "NodeChanged": _changed,
    "NodeRemoved": lambda body, names: f"{_node(body, names)} was removed",
    "ReleaseRefused": lambda body, names: f"{_node(body, names)} cannot be released; it stays in service",
    "NodeLost": lambda body, names: f"{_node(body, names)} is lost",
    "NodeRestored": lambda body, names: f"{_node(body, names)} is back",
    "DeviceLost": lambda body, names: f"{_device(body, names)} is lost",
    "DeviceRestored": lambda body, names: f"{_device(body, names)} is back",
    "DevicesClaimed": _claimed,
    "Start": lambda body, names: f"starts on {_where(body, names)}",
    "Resume": lambda body, names: f"resumed on {_where(body, names)}",
    "Suspend": "is being suspended",
    "Stop": "is being stopped",
    "Resize": lambda body, names: f"is resized to {_where(body, names)}",
    "Migrate": lambda body, names: f"moves to {_where(body, names)}",
    "Rearrange": _rearranged,
    "Repartition": _repartitioned,
    "Provision": lambda body, names: f"node {body['node']['name']} is requested",
    "Release": lambda body, names: f"{_node(body, names)} is released",
}
