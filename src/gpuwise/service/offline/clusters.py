"""Clusters as users name them: shorthand, a TOML file, or the node list of a trace; GPU types are the catalogue's."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gpuwise.core.cluster.spec import MAX_NODES, ClusterSpec, NodeSpec
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.units import parse_bytes
from gpuwise.devices.catalogue import GpuType, gpu_type
from gpuwise.sim.traces.files import read_nodes

_FILE_FIELDS = ("count", *(field.name for field in fields(NodeSpec) if field.name != "name"), "name")


def load_cluster(given: str | Path | ClusterSpec) -> ClusterSpec:
    """A cluster from shorthand such as ``8x8:V100``, a file, or an object; memory and price are the catalogue's.

    A file is a TOML file with ``[[node]]`` tables, or a node list (.csv) as openb, Tiresias and Muri have.
    """
    if isinstance(given, ClusterSpec):
        return given
    text = str(given)
    if text.endswith(".toml") or (isinstance(given, Path) and not text.endswith(".csv")):
        return _from_toml(Path(given))
    if text.endswith(".csv"):
        listed = ("name", "gpu_type", "gpus", "cpus", "memory_bytes")
        rows = [{name: getattr(row, name) for name in listed} for row in read_nodes(text)]
        return _from_catalogue([NodeSpec(**row) for row in rows])
    return _from_catalogue(ClusterSpec.parse(text).nodes)


def _from_catalogue(nodes: Sequence[NodeSpec]) -> ClusterSpec:
    """Nodes with what the catalogue knows of their GPUs; a node list may leave the type open."""
    known = {name: gpu_type(name) for name in sorted({node.gpu_type for node in nodes if node.gpu_type})}
    return ClusterSpec(tuple(_filled(node, known[node.gpu_type]) if node.gpu_type else node for node in nodes))


def _filled(node: NodeSpec, gpu: GpuType) -> NodeSpec:
    """A node with the memory and the price of its GPU type, where it has none of its own."""
    found: dict[str, Any] = {"gpu_type": gpu.name}
    if math.isinf(node.gpu_memory_bytes) and gpu.memory_bytes is not None:
        found["gpu_memory_bytes"] = gpu.memory_bytes
    if math.isnan(node.usd_per_hour) and gpu.usd_per_hour is not None:
        found["usd_per_hour"] = gpu.usd_per_hour * node.gpus
    return replace(node, **found)


def _from_toml(path: Path) -> ClusterSpec:
    try:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GpuwiseError(f"no cluster file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise GpuwiseError(f"cluster file {path}: {error}") from None
    for name in file:
        if name != "node":
            raise GpuwiseError(f"cluster file {path}: unknown table {name!r}; nodes are [[node]] tables")
    entries = file.get("node", [])
    if not isinstance(entries, list) or not entries:
        raise GpuwiseError(f"cluster file {path} has no [[node]] tables; each needs gpu_type and gpus")
    nodes: list[NodeSpec] = []
    try:
        for entry in entries:
            nodes += _nodes(entry, len(nodes))
    except GpuwiseError as error:
        raise GpuwiseError(f"cluster file {path}: {error}") from None
    return ClusterSpec(tuple(nodes))


def _nodes(entry: Any, first: int) -> list[NodeSpec]:
    """The nodes that one table stands for."""
    if not isinstance(entry, dict):
        raise GpuwiseError(f"node is {entry!r}; write [[node]] tables with gpu_type and gpus")
    values = {name: _value(name, value) for name, value in entry.items()}
    count = values.pop("count", 1)
    if not 1 <= count <= MAX_NODES - first:
        raise GpuwiseError(f"count is {count}; a cluster has 1 to {MAX_NODES} nodes")
    prefix = values.pop("name", "n")
    if missing := [name for name in ("gpu_type", "gpus") if name not in values]:
        raise GpuwiseError(f"a [[node]] has no {missing[0]}; each needs gpu_type and gpus")
    if count > 1 and (stated := [name for name in ("uid", "device_ids") if name in values]):
        raise GpuwiseError(f"count is {count}, and {stated[0]} is stated; it can be that of one node only")
    node = _filled(NodeSpec(name=prefix, **values), gpu_type(values["gpu_type"]))
    names = [prefix] if count == 1 and "name" in entry else [f"{prefix}{first + i}" for i in range(count)]
    return [replace(node, name=name) for name in names]


def _labels(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise GpuwiseError(f'{name} is {value!r}; write for example {name} = {{ zone = "a", rack = "r1" }}')
    return tuple(value.items())


def _device_ids(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise GpuwiseError(f"{name} is {value!r}; it must be a list of UUIDs, one for each GPU")
    return tuple(value)


def _links(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    groups: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(group, list) and all(type(each) is int for each in group) for group in groups):
        raise GpuwiseError(f"{name} is {value!r}; write groups of GPUs joined by NVLink, such as [[0, 1], [2, 3]]")
    return tuple(tuple(group) for group in groups)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise GpuwiseError(f"{name} is {value!r}; it must be true or false")
    return value


_STATED: Mapping[str, Callable[[str, Any], Any]] = {
    "labels": _labels,
    "device_ids": _device_ids,
    "links": _links,
    "schedulable": _flag,
}


_KINDS: Mapping[str, type] = {"gpu_type": str, "name": str, "uid": str, "gpus": int, "count": int}


def _value(name: str, value: Any) -> Any:
    """A field's value, of the kind that the field has."""
    if name not in _FILE_FIELDS:
        raise UnknownNameError("node field", name, _FILE_FIELDS)
    if name in ("memory_bytes", "gpu_memory_bytes") and isinstance(value, str):
        try:
            return parse_bytes(value)
        except GpuwiseError as error:
            raise GpuwiseError(f"{name}: {error}") from None
    if name in _STATED:
        return _STATED[name](name, value)
    kinds = _KINDS.get(name, (int, float))
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise GpuwiseError(f"{name} is {value!r}; it must be {'text' if kinds is str else 'a number'}")
    return value
