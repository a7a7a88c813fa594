"""The append-only journal: every event and command in order; replaying it gives the same state."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import COMMAND_TYPES, Command, Grant, MigSlice, Placement, TaskGrant
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import EVENT_TYPES, Event, JobSubmitted
from gpuwise.core.job import schema
from gpuwise.core.job.needs import Sharing, Source
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.engine.allocation import COMMAND_HANDLERS, Handler
from gpuwise.engine.job_transitions import JOB_HANDLERS
from gpuwise.engine.node_transitions import NODE_HANDLERS

VERSION = 1
Record = Event | Command
HANDLERS: dict[type[Event] | type[Command], Handler] = {**COMMAND_HANDLERS, **JOB_HANDLERS, **NODE_HANDLERS}
"""How every record changes the state, by type; a replay is nothing else."""
_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in (*EVENT_TYPES, *COMMAND_TYPES)}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _TYPES.values()}


class JournalError(GpuwiseError):
    """A journal that cannot be read."""


class Journal:
    """What happened and what was done about it, since the beginning."""

    def __init__(self, cluster: ClusterSpec, jobs: JobTable, policy: str, seed: int) -> None:
        self.cluster = cluster
        self.policy = policy
        self.seed = seed
        self.records: list[Record] = []
        self.append = self.records.append
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self.records)

    def lines(self) -> Iterator[str]:
        """The journal as JSON, one line per record; a job's declaration stands with its submission."""
        nodes = [plain(node) for node in self.cluster.nodes]
        yield _json({"gpuwise_journal": VERSION, "policy": self.policy, "seed": self.seed, "nodes": nodes})
        at_s = 0.0
        for record in self.records:
            if isinstance(record, Event):
                at_s = max(at_s, record.at_s)
            yield encode(record, at_s, self._jobs)

    def write(self, path: Path) -> None:
        """Writes the journal to a file."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in self.lines())

    def digest(self) -> str:
        """A fingerprint: equal journals have equal digests."""
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


def encode(record: Record, at_s: float, jobs: JobTable) -> str:
    """A record as a line of JSON; a command has no time of its own and gets ``at_s``."""
    kind = type(record)
    entry = {"type": kind.__name__} | {name: plain(getattr(record, name)) for name in _FIELDS[kind]}
    entry.setdefault("at_s", at_s)
    if isinstance(record, JobSubmitted):
        entry["spec"] = plain(jobs.declared(record.job))
    return _json(entry)


def replay_onto(state: ClusterState, lines: Iterable[str], first: int = 1) -> None:
    """Applies the lines of a journal to a state."""
    for number, line in enumerate(lines, start=first):
        entry = _loads(line, number)
        try:
            _apply(state, entry, number)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise JournalError(f"line {number}: not a record of this journal ({error!r})") from error


def replay(lines: Iterable[str]) -> ClusterState:
    """The state that a journal leads to."""
    source = iter(lines)
    header = _loads(next(source, ""), 1)
    if header.get("gpuwise_journal") != VERSION:
        raise JournalError(f"line 1: not a gpuwise journal of version {VERSION}")
    state = ClusterState(ClusterSpec(tuple(node_spec(node) for node in header["nodes"])))
    replay_onto(state, source, first=2)
    return state


def _apply(state: ClusterState, entry: dict[str, Any], number: int) -> None:
    kind = _TYPES.get(entry["type"])
    if kind is None:
        raise JournalError(f"line {number}: unknown record {entry['type']!r}")
    if kind is JobSubmitted:
        _declare(state, entry, number)
    state.now_s = max(state.now_s, entry["at_s"])
    HANDLERS[kind](state, kind(**{name: _revive(name, entry[name]) for name in _FIELDS[kind] if name in entry}))


def read_journal(path: Path) -> ClusterState:
    """The state that a journal file leads to."""
    with path.open(encoding="utf-8") as file:
        return replay(file)


def job_spec(entry: dict[str, Any]) -> JobSpec:
    """Undoes `plain` for a job; reads what earlier versions wrote, too."""
    return schema.revive(JobSpec, _from_batch_size(entry) if "batch_size" in entry else entry)


def _from_batch_size(entry: dict[str, Any]) -> dict[str, Any]:
    """The declaration as versions before ``batch_per_gpu`` wrote it, every field of it.

    Their batch is that of all GPUs, and unknown steps are written as the run time.
    """
    spec = {name: value for name, value in entry.items() if name != "batch_size"}
    if spec.get("steps") == spec["duration_s"]:
        spec["steps"] = None
    return spec | {"batch_per_gpu": math.ceil(entry["batch_size"] / max(1, spec["gpus"]))}


def node_spec(entry: dict[str, Any]) -> NodeSpec:
    """Undoes `plain` for a node."""
    spec = _floats(entry)
    for name in ("labels", "links"):
        spec[name] = tuple(tuple(each) for each in spec.get(name, ()))
    spec["device_ids"] = tuple(spec.get("device_ids", ()))
    return NodeSpec(**spec)


def _declare(state: ClusterState, entry: dict[str, Any], number: int) -> None:
    rows = state.jobs.declare([job_spec(entry["spec"])])
    if rows[0] != entry["job"]:
        raise JournalError(f"line {number}: job {entry['job']} is declared as row {rows[0]}; lines are missing")


def plain(value: Any) -> Any:
    """A value as JSON can carry it."""
    if isinstance(value, Placement):
        entry = {"grants": plain(value.grants), "sharing": value.sharing.name, "milli": plain(value.milli)}
        if value.quantum_s:
            entry["quantum_s"] = value.quantum_s
        return {**entry, "tasks": value.tasks} if value.tasks else entry
    if isinstance(value, np.generic):  # a policy may name jobs by entries of an array
        return plain(value.item())
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, JobSpec):
        return schema.plain(value)
    if isinstance(value, NodeSpec):
        given = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: plain(each) for name, each in given if each != _LEFT_OUT.get(name, _WRITTEN)}
    if isinstance(value, frozenset):
        return sorted(member.name for member in value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


_WRITTEN = object()
_LEFT_OUT: dict[str, Any] = {"uid": "", "labels": (), "device_ids": (), "links": (), "schedulable": True}
"""What most nodes do not state, and is not written for them."""


def _floats(entry: dict[str, Any]) -> dict[str, Any]:
    """Undoes how infinite and unknown numbers are written."""
    return {name: float(value) if _is_number(name, value) else value for name, value in entry.items()}


def _is_number(name: str, value: Any) -> bool:
    return isinstance(value, str) and value in ("inf", "nan", "-inf") and name.endswith(_NUMBERS)


_NUMBERS = ("_s", "_bytes", "_frac", "cpus", "_hour")


def _revive(name: str, value: Any) -> Any:
    if name == "placement":
        return placement_of(value)
    if name == "moves":
        return tuple((job, placement_of(placement)) for job, placement in value)
    if name == "slices":
        return slices_of(value)
    if name == "interrupted":
        return tuple((job, steps) for job, steps in value)
    if name == "devices":
        return tuple((device, float(memory), exclusive) for device, memory, exclusive in value)
    if name == "parked":
        return tuple((uid, device, float(memory)) for uid, device, memory in value)
    if name == "avoid":
        return tuple(value)
    if name == "source":
        return Source(value)
    if name == "node" and isinstance(value, dict):
        return node_spec(value)
    return float(value) if _is_number(name, value) else value


def slices_of(value: Iterable[Any]) -> tuple[MigSlice, ...]:
    """Undoes `plain` for the slices of a GPU."""
    return tuple(MigSlice(profile, start, milli, float(memory)) for profile, start, milli, memory in value)


def placement_of(value: dict[str, Any]) -> Placement:
    """Undoes `plain` for a placement."""
    grants = tuple(Grant(*grant) for grant in value["grants"])
    tasks = tuple(TaskGrant(*task) for task in value.get("tasks", ()))
    return Placement(grants, Sharing[value["sharing"]], value["milli"], value.get("quantum_s", 0.0), tasks)


def _json(entry: dict[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False)


def _loads(line: str, number: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise JournalError(f"line {number}: not JSON ({error.msg})") from error
    if not isinstance(entry, dict):
        raise JournalError(f"line {number}: not a record")
    return entry
