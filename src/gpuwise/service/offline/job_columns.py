"""Jobs of a trace, a frame or a list as columns of the job table, with GPU types as the catalogue spells them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.job.kinds import Number, Text
from gpuwise.core.job.property import PropertyError
from gpuwise.core.job.schema import Entry, entries
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.devices.catalogue import gpu_type
from gpuwise.devices.mig import mig_profiles
from gpuwise.sim.traces.files import read_trace, trace_from_frame
from gpuwise.sim.traces.schema import TRACE_SCHEMA
from gpuwise.sim.traces.trace import Trace

AnyTrace = str | os.PathLike[str] | Trace | pl.DataFrame | Sequence[JobSpec]
TRACED = {name: entry for name, entry in entries(JobSpec).items() if name in TRACE_SCHEMA}


def job_columns(trace: AnyTrace) -> tuple[dict[str, Any], str]:
    """The columns of jobs, and what their source is called."""
    if isinstance(trace, Sequence) and not isinstance(trace, str):
        return _spec_columns(trace), "jobs"
    if isinstance(trace, pl.DataFrame):
        trace = trace_from_frame(trace)
    elif not isinstance(trace, Trace):
        trace = read_trace(os.fspath(trace))
    return _trace_columns(trace), trace.name


def _trace_columns(trace: Trace) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, entry in TRACED.items():
        cells = trace.jobs[name]
        if isinstance(entry.kind, (Number, Text)):
            columns[name] = cells.to_list()
            continue
        known = {text: _from_cell(entry, text) for text in cells.unique()}
        if set(known.values()) != {entry.default}:  # a column of defaults need not be declared
            columns[name] = [known[text] for text in cells]
    return columns


def _from_cell(entry: Entry, text: str) -> Any:
    """The value that a cell of a trace stands for, with GPU types as the catalogue spells them."""
    try:
        value = entry.kind.from_cell(text)
    except ValueError:
        raise GpuwiseError(f"{entry.name} is {text!r}; it must be {entry.about.noun or entry.kind.noun}") from None
    value = _CANONICAL[entry.name](value) if entry.name in _CANONICAL else value
    if expected := entry.wrong(value):
        raise PropertyError(entry.name, text, expected)
    return value


def _known_types(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({gpu_type(name).name for name in names}))


def _known_speeds(speeds: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple({_canonical(name): speed for name, speed in speeds}.items())


_CANONICAL: dict[str, Callable[[Any], Any]] = {"gpu_types": _known_types, "speeds": _known_speeds}


def _canonical(name: str) -> str:
    """A GPU type, or a slice of one, as the catalogue spells it."""
    kind, slash, part = name.partition("/")
    gpu = gpu_type(kind).name
    slices = [f"{profile.compute_slices}g" for profile in mig_profiles(gpu)] if slash else []
    if slash and part not in slices:
        raise UnknownNameError(f"MIG slice of {gpu}", part, dict.fromkeys(slices))
    return gpu + slash + part


def _spec_columns(specs: Sequence[JobSpec]) -> dict[str, Any]:
    if not specs:
        raise GpuwiseError("there are no jobs to simulate")
    ordered = sorted(specs, key=lambda spec: spec.submit_s)
    JobTable().declare(ordered)  # refuses what the table would, such as an id given twice
    columns: dict[str, Any] = {name: [getattr(spec, name) for spec in ordered] for name in entries(JobSpec)}
    columns["gpu_types"] = [tuple(gpu_type(name).name for name in spec.gpu_types) for spec in ordered]
    columns["speeds"] = [tuple((_canonical(name), speed) for name, speed in spec.speeds) for spec in ordered]
    return columns
