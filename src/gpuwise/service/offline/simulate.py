"""Simulate: a trace, a cluster and a policy in; the result out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.job.needs import sharing_only
from gpuwise.core.job.shape import describe_roles
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import MakeRates, Placer, Policy, RateModel, feasible
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.tables import Array
from gpuwise.core.units import format_bytes
from gpuwise.engine.drive import drive
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placers import DEFAULT_PLACER, make_placer
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.clusters import load_cluster
from gpuwise.service.offline.job_columns import AnyTrace, job_columns
from gpuwise.sim.executor.failures import Memory, NodeFault
from gpuwise.sim.executor.virtual import VirtualExecutor
from gpuwise.sim.results.result import SimulationResult
from gpuwise.sim.traces.files import read_trace, write_trace
from gpuwise.sim.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happens in a simulation, where it is not what was declared."""

    rates: MakeRates | None = None
    gpu_memory_bytes: Mapping[str, float] | None = None
    """Memory that each job really uses of a GPU, by its id: one that finds too little left fails and is requeued."""
    gpu_util_frac: Mapping[str, float] | None = None
    """Utilization that each job really has, by its id: observed when it has been alone on a GPU for a minute."""
    repartition_s: float = 0.0
    """How long it takes to partition a GPU."""


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
    ``forecast_error`` spreads the run times that the policy is given around the true ones: log-normally, with this
    standard deviation. A job larger than the cluster is an error, or left out with ``oversized="drop"``. ``beliefs``
    makes the rates that the policy believes, ``truth`` says what comes of them; both are as declared if not given.
    """
    if oversized not in ("error", "drop"):
        raise UnknownNameError("value of oversized", oversized, ("error", "drop"))
    if seed < 0:
        raise GpuwiseError(f"seed is {seed}; it must be 0 or more")
    spec = load_cluster(cluster)
    chosen = make_policy(policy) if isinstance(policy, str) else policy
    columns, name = job_columns(trace)
    started = perf_counter()
    jobs = _declare(columns, forecast_error, seed)
    placer, placed_by = _placer(placement, chosen, jobs, seed)
    fits = _fits(jobs, spec, placer, chosen)
    if not fits.all():
        if oversized == "error" or not fits.any():
            raise GpuwiseError(_too_large(jobs, fits, spec, placer, chosen))
        columns = {column: [values[i] for i in np.flatnonzero(fits)] for column, values in columns.items()}
        jobs = _declare(columns, forecast_error, seed)
    engine = Engine(spec, chosen, placer=placer, seed=seed, jobs=jobs, round_s=round_s, beliefs=beliefs)
    executor = _executor(engine, columns["duration_s"], _checked(faults, spec), truth or Truth())
    with _no_collection():
        drive(engine, executor)
    label = policy if isinstance(policy, str) else chosen.name
    return SimulationResult(label, name, spec.describe(), placed_by, seed, perf_counter() - started, engine)


def _checked(faults: Iterable[NodeFault], cluster: ClusterSpec) -> tuple[NodeFault, ...]:
    given = tuple(faults)
    for fault in given:
        if not 0 <= fault.node < len(cluster.nodes):
            raise GpuwiseError(f"a fault of node {fault.node}; the cluster has nodes 0 to {len(cluster.nodes) - 1}")
    return given


def _executor(
    engine: Engine, durations_s: Sequence[float], faults: tuple[NodeFault, ...], truth: Truth
) -> VirtualExecutor:
    jobs, nodes = engine.state.jobs, engine.state.nodes
    memory = None if truth.gpu_memory_bytes is None else Memory(nodes, _by_row(truth.gpu_memory_bytes, jobs))
    seen = None if truth.gpu_util_frac is None else _by_row(truth.gpu_util_frac, jobs)
    if truth.rates is None:
        rates: RateModel = DeclaredRates(jobs, nodes, np.asarray(durations_s, dtype="f8"), seen)
    else:
        rates = truth.rates(jobs, nodes)
    return VirtualExecutor(
        jobs, nodes, rates, faults=faults, memory=memory, repartition_s=truth.repartition_s, utilization=seen
    )


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
    """The job table, with the run times that the policy is given in place of the true ones."""
    if not 0 <= forecast_error <= 10:
        raise GpuwiseError(f"a forecast error of {forecast_error}; it must be 0 to 10")
    jobs = JobTable()
    if forecast_error:
        noise = np.random.default_rng(seed).normal(0.0, forecast_error, len(columns["id"]))
        estimated_s = np.asarray(columns["duration_s"], dtype="f8") * np.exp(noise)
        columns = {**columns, "duration_s": estimated_s.tolist()}
    jobs.declare_columns(columns)
    return jobs


def _fits(jobs: JobTable, cluster: ClusterSpec, placer: Placer, policy: Policy) -> Array:
    """Which jobs could run on the empty cluster."""
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
        where, what = f" under policy {policy.name!r}", "use a policy that allocates GPUs so, and GPUs that can"
    else:
        where, what = "", "use a larger cluster or --placement consolidated, which splits gangs over any nodes"
    return (
        f"job {jobs.ids[row]!r} asks for {asked}, which {cluster.describe()} does not have even when it is empty"
        f"{where} ({count} such job{'' if count == 1 else 's'} in all); {what}, or leave them out with "
        "--drop-oversized (oversized='drop')"
    )


def convert(trace: str, path: Path, **reading: Any) -> Trace:
    """Reads a trace and writes it as gpuwise's own CSV or Parquet."""
    loaded = read_trace(trace, **reading)
    write_trace(loaded, path)
    return loaded


@dataclass(frozen=True, slots=True)
class Comparison:
    """One trace on one cluster under several policies."""

    trace: Trace
    cluster: ClusterSpec
    results: Sequence[SimulationResult]
    refused: Sequence[GpuwiseError]
    """Why the other policies could not run it."""

    def write_report(self, path: Path) -> None:
        """Writes an HTML page that compares the results."""
        from gpuwise.sim.results.report.page import html_report

        html_report(self.results, path)

    def write_plot(self, path: Path) -> None:
        """Writes charts of the results as .png or .svg."""
        from gpuwise.sim.results.plots import save

        save(self.results, path)

    def write_journal(self, path: Path) -> None:
        """Writes the journal of the first result, one line per record."""
        self.results[0].engine.journal.write(path)

    def write_jobs(self, path: Path) -> None:
        """Writes the first result's jobs, one row per job, as .csv or .parquet."""
        frame = self.results[0].to_frame()
        try:
            frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
        except OSError as error:
            raise GpuwiseError(f"{path}: {error.strerror or error}") from None


def compare(
    trace: str, cluster: str, policies: Sequence[str], *, reading: Mapping[str, Any],
    progress: Callable[[Sequence[str]], Iterable[str]] = iter, **options: Any,
) -> Comparison:  # fmt: skip
    """Replays a trace under several policies; names are checked before it is read.

    ``reading`` are options of `read_trace`, ``options`` those of `simulate`.
    """
    spec = load_cluster(cluster)
    for name in policies:
        make_policy(name)
    loaded = read_trace(trace, **reading)
    results, refused = [], []
    for name in progress(policies):
        try:
            results.append(simulate(loaded, spec, name, **options))
        except GpuwiseError as error:
            refused.append(GpuwiseError(f"{name}: {error}") if len(policies) > 1 else error)
    return Comparison(loaded, spec, results, refused)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A run makes many small objects that live to its end; collecting garbage among them is wasted time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
