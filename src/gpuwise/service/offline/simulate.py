"""Simulate: a trace, a cluster and a policy in; the result out."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import polars as pl

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.job.kinds import Number, Text
from gpuwise.core.job.needs import sharing_only
from gpuwise.core.job.property import PropertyError
from gpuwise.core.job.schema import Entry, entries
from gpuwise.core.job.shape import describe_roles
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import MakeRates, Placer, Policy, feasible
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.tables import Array
from gpuwise.core.units import format_bytes
from gpuwise.devices.catalogue import gpu_type
from gpuwise.devices.mig import mig_profiles
from gpuwise.engine.drive import drive
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placers import DEFAULT_PLACER, make_placer
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.clusters import load_cluster
from gpuwise.sim.executor.failures import Memory, NodeFault
from gpuwise.sim.executor.virtual import VirtualExecutor
from gpuwise.sim.results.result import SimulationResult
from gpuwise.sim.traces.files import read_trace, trace_from_frame
from gpuwise.sim.traces.schema import TRACE_SCHEMA
from gpuwise.sim.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happens in a simulation, where it is not what was declared."""

    rates: MakeRates | None = None
    gpu_memory_bytes: Mapping[str, float] | None = None
    """Memory that each job really takes of a GPU, by its id: one that finds too little left fails and comes again."""
    gpu_util_frac: Mapping[str, float] | None = None
    """Utilization that each job really has, by its id: seen when it has been alone on a GPU for a minute."""
    repartition_s: float = 0.0
    """How long it takes to cut a GPU into slices."""


AnyTrace = str | os.PathLike[str] | Trace | pl.DataFrame | Sequence[JobSpec]


def simulate(
    trace: AnyTrace,
    cluster: str | Path | ClusterSpec,
    policy: str | Policy = "fifo",
    *,
    placement: str | Placer | None = None,
    seed: int = 0,
    round_s: float | None = None,
    forecast_error: float = 0.0,
    oversized: Literal["error", "drop"] = "error",
    faults: Iterable[NodeFault] = (),
    beliefs: MakeRates | None = None,
    truth: Truth | None = None,
) -> SimulationResult:
    """Replays a trace on a cluster under a policy.

    ``trace`` is a file, a generator such as ``"gen:gavel?jobs=500&seed=1"``, a frame, or job specs. ``placement`` is
    the policy's own or ``best-fit`` where none is given. ``round_s`` lets the policy decide only at multiples of it.
    ``forecast_error`` spreads what the policy believes of each run time around the truth: log-normally, with this
    standard deviation. A job larger than the cluster is an error, or left out with ``oversized="drop"``. ``beliefs``
    makes the rates that the policy believes, ``truth`` says what comes of them; both are as declared if not given.
    """
    if oversized not in ("error", "drop"):
        raise UnknownNameError("value of oversized", oversized, ("error", "drop"))
    if seed < 0:
        raise GpuwiseError(f"seed is {seed}; it must be 0 or more")
    spec = load_cluster(cluster)
    chosen = make_policy(policy) if isinstance(policy, str) else policy
    faults = tuple(faults)
    for fault in faults:
        if not 0 <= fault.node < len(spec.nodes):
            raise GpuwiseError(f"a fault of node {fault.node}; the cluster has nodes 0 to {len(spec.nodes) - 1}")
    columns, name = _job_columns(trace)
    begun = perf_counter()
    jobs = _declare(columns, forecast_error, seed)
    placer, placed_by = _placer(placement, chosen, jobs, seed)
    fits = _fits(jobs, spec, placer, chosen)
    if not fits.all():
        if oversized == "error" or not fits.any():
            raise GpuwiseError(_too_large(jobs, fits, spec, placer, chosen))
        columns = {column: [values[i] for i in np.flatnonzero(fits)] for column, values in columns.items()}
        jobs = _declare(columns, forecast_error, seed)
    engine = Engine(spec, chosen, placer=placer, seed=seed, jobs=jobs, round_s=round_s, beliefs=beliefs)
    world, nodes = truth or Truth(), engine.state.nodes
    durations_s = np.asarray(columns["duration_s"], dtype="f8")
    memory = None if world.gpu_memory_bytes is None else Memory(nodes, _by_row(world.gpu_memory_bytes, jobs))
    seen = None if world.gpu_util_frac is None else _by_row(world.gpu_util_frac, jobs)
    rates = DeclaredRates(jobs, nodes, durations_s, seen) if world.rates is None else world.rates(jobs, nodes)
    executor = VirtualExecutor(
        jobs, nodes, rates, faults=faults, memory=memory, repartition_s=world.repartition_s, utilization=seen
    )
    with _no_collection():
        drive(engine, executor)
    label = policy if isinstance(policy, str) else chosen.name
    return SimulationResult(label, name, spec.describe(), placed_by, seed, perf_counter() - begun, engine)


def _by_row(of: Mapping[str, float], jobs: JobTable) -> list[float]:
    """A figure of each job, in the order of the table."""
    if missing := next((name for name in jobs.ids if name not in of), None):
        raise GpuwiseError(f"the truth says nothing of the memory or the utilization of job {missing!r}")
    return [of[name] for name in jobs.ids]


def _placer(given: str | Placer | None, policy: Policy, jobs: JobTable, seed: int) -> tuple[Placer, str]:
    """The placement that was asked for, else the policy's own, else the default; and what to call it."""
    if given is None and hasattr(policy, "placer"):
        return with_roles(policy.placer), f"{policy.name}'s own"
    if given is None or isinstance(given, str):
        return make_placer(given or DEFAULT_PLACER, jobs, seed), given or DEFAULT_PLACER
    return with_roles(given), getattr(given, "__name__", type(given).__name__)


def _declare(columns: dict[str, Any], forecast_error: float, seed: int) -> JobTable:
    """The job table, with what is believed of run times in place of the truth."""
    if not 0 <= forecast_error <= 10:
        raise GpuwiseError(f"a forecast error of {forecast_error}; it must be 0 to 10")
    jobs = JobTable()
    if forecast_error:
        noise = np.random.default_rng(seed).normal(0.0, forecast_error, len(columns["id"]))
        believed_s = np.asarray(columns["duration_s"], dtype="f8") * np.exp(noise)
        columns = {**columns, "duration_s": believed_s.tolist()}
    jobs.declare_columns(columns)
    return jobs


def _job_columns(trace: AnyTrace) -> tuple[dict[str, Any], str]:
    if isinstance(trace, Sequence) and not isinstance(trace, str):
        return _spec_columns(trace), "jobs"
    if isinstance(trace, pl.DataFrame):
        trace = trace_from_frame(trace)
    elif not isinstance(trace, Trace):
        trace = read_trace(os.fspath(trace))
    columns: dict[str, Any] = {}
    for name, entry in TRACED.items():
        cells = trace.jobs[name]
        if isinstance(entry.kind, (Number, Text)):
            columns[name] = cells.to_list()
            continue
        known = {text: _from_cell(entry, text) for text in cells.unique()}
        if set(known.values()) != {entry.default}:  # what no job states need not be looked at job by job
            columns[name] = [known[text] for text in cells]
    return columns, trace.name


TRACED = {name: entry for name, entry in entries(JobSpec).items() if name in TRACE_SCHEMA}


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
    table = JobTable()
    ordered = sorted(specs, key=lambda spec: spec.submit_s)
    table.declare(ordered)
    columns: dict[str, Any] = {name: [getattr(spec, name) for spec in ordered] for name in entries(JobSpec)}
    columns["gpu_types"] = [tuple(gpu_type(name).name for name in spec.gpu_types) for spec in ordered]
    columns["speeds"] = [tuple((_canonical(name), speed) for name, speed in spec.speeds) for spec in ordered]
    return columns


def _fits(jobs: JobTable, cluster: ClusterSpec, placer: Placer, policy: Policy) -> Array:
    """Which jobs the cluster holds when it is empty."""
    empty = Capacity(node_table(cluster))
    by_shape = np.array([feasible(policy, empty, shape, placer) for shape in jobs.shapes], dtype=bool)
    fits: Array = by_shape[jobs.shape[: len(jobs)]]
    return fits


def _too_large(jobs: JobTable, fits: Array, cluster: ClusterSpec, placer: Placer, policy: Policy) -> str:
    row, count = int(np.argmin(fits)), int((~fits).sum())
    shape = jobs.shape_of(row)
    asked = f"{shape.gpus} GPU{'' if shape.gpus == 1 else 's'}"
    asked += f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    asked += f" with {format_bytes(shape.gpu_memory_bytes)} each" if shape.gpu_memory_bytes else ""
    asked += f" and {shape.cpus:g} CPUs" if shape.cpus else ""
    asked += f" as {describe_roles(shape.roles)}" if shape.roles else ""
    asked += sharing_only(shape.sharing)
    if placer(Capacity(node_table(cluster)), shape, shape.gpus) is not None:
        where, what = f" under policy {policy.name!r}", "use another policy"
    elif not shape.alone:
        where, what = f" under policy {policy.name!r}", "use a policy that lets jobs hold GPUs so, and GPUs that can"
    else:
        where, what = "", "use a larger cluster or --placement consolidated, which splits gangs over any nodes"
    return (
        f"job {jobs.ids[row]!r} asks for {asked}, which {cluster.describe()} does not hold even when it is empty"
        f"{where} ({count} such job{'' if count == 1 else 's'} in all); {what}, or leave them out with "
        "--drop-oversized (oversized='drop')"
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """A run makes many small objects that live to its end; looking through them for garbage is wasted time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
