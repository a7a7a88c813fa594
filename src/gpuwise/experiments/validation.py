"""Is the simulator right? Published results of simulators, a testbed and placements, on the same traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import Placer
from gpuwise.core.tables import Array
from gpuwise.core.units import MIB, WHOLE_GPU_MILLI
from gpuwise.experiments.rows import Row
from gpuwise.policies.placing.fragmentation import FragmentationDescent, typical_classes
from gpuwise.policies.placing.least_left import least_left
from gpuwise.policies.placing.random_fit import RandomFit
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.traces.files import read_nodes, read_trace
from gpuwise.sim.traces.schema import NodeRow

NAME = "validation"

PEERS = (
    # jobs, placement, simulator, published average JCT
    (1000, "first-fit", "Tiresias' simulator", 12172.0),
    (1000, "best-fit", "Lucid's simulator", 12171.0),
    (2000, "first-fit", "Tiresias' simulator", 14504.0),
    (2000, "best-fit", "Lucid's simulator", 14660.0),
)

MURI_POLICIES = {"SRTF": ("srtf?repack=true", 0.05), "SRSF": ("srsf?repack=true", 0.05), "Tiresias_L": ("las", 0.10)}
TESTBED_AVG_JCT_S = {"SRTF": 249140.0, "SRSF": 238612.0, "Tiresias_L": 336533.0}


def rows(data: Path) -> list[Row]:
    """Every check."""
    return [*peers(data), *muri_simulated(data), *muri_measured(data), *fragmentation(data)]


def peers(data: Path) -> list[Row]:
    """Strict FIFO on samples of Philly, 32 nodes × 8 GPUs, against other simulators."""
    found = []
    for count, placement, simulator, published in PEERS:
        result = simulate(data / "peers" / f"philly32x8_{count}.csv", "32x8:V100", "fifo", placement=placement)
        metric = f"Philly {count} jobs, FIFO, {placement}: average JCT"
        found.append(Row(NAME, metric, "s", published, result.metrics.avg_jct_s, 0.01, simulator))
    return found


def muri_simulated(data: Path, traces: Sequence[str] = ("trace1", "trace2")) -> list[Row]:
    """Muri's traces on 8 nodes × 8 V100 against the simulated figures of their paper."""
    published = pl.read_csv(data / "muri" / "published_simulation_results_fig9_fig10.csv")
    found = []
    for name in traces:
        trace = read_trace(data / "muri" / "simulator" / "trace-data" / f"{name}.csv")
        for theirs, (policy, within) in MURI_POLICIES.items():
            row = published.filter(policy=theirs, metric="JCT", trace=name)
            result = simulate(trace, "8x8:V100", policy)
            metric = f"Muri {name}, {policy}: average JCT"
            found.append(
                Row(NAME, metric, "s", row["value_seconds"][0], result.metrics.avg_jct_s, within, "their simulator")
            )
    return found


def muri_measured(data: Path) -> list[Row]:
    """Muri's 400-job trace against the measurements on their testbed of 64 V100."""
    trace = read_trace(data / "muri" / "cluster_exp" / "trace-data" / "cluster_trace.csv")
    found = []
    for theirs, (policy, _) in MURI_POLICIES.items():
        result = simulate(trace, "8x8:V100", policy)
        metric = f"Muri testbed, {policy}: average JCT"
        found.append(
            Row(NAME, metric, "s", TESTBED_AVG_JCT_S[theirs], result.metrics.avg_jct_s, 0.10, "measured on 64 V100")
        )
    return found


# -- fragmentation -----------------------------------------------------------------------------------------------------

FOLDER = "alibaba_gpu_v2023"
INFLATION = 1.3
"""The demand that is offered in all, as a multiple of the cluster."""
FIRST_SEED = 42
NOWHERE = "no node is large enough"
"""The GPU type of a pod that fits no node even when all is idle."""

PlacerFactory = Callable[[JobTable, int], Placer]
"""Makes a placer from the pods to come and a seed."""


PUBLISHED: Sequence[tuple[str, float, PlacerFactory]] = (
    # placement, published percentage, how to make it
    ("random", 86.30, lambda jobs, seed: RandomFit(seed)),
    ("best fit (least-left)", 92.86, lambda jobs, seed: least_left),
    ("FGD", 95.23, lambda jobs, seed: FragmentationDescent(typical_classes(jobs))),
)


def fragmentation(data: Path, seeds: int = 10) -> list[Row]:
    """How much of a cluster can be allocated: openb's pods under random fit, best fit and fragmentation descent.

    The experiment of "Beware of Fragmentation" (USENIX ATC 2023): 8,152 pods on 1,213 nodes with 6,212 GPUs. Pods
    arrive in random order, and more are drawn from the same list until they ask for 130 % of the GPUs. A pod that does
    not fit is rejected, and none ends. The figure is the part of the GPUs that is allocated when the pods that have
    arrived ask for as many GPUs as there are, the mean over the arrivals at which that demand rounds to 100 %, and over
    ``seeds`` orders of pods and nodes.
    """
    pods = read_pods(data / FOLDER / "openb_pod_list_default.csv")
    nodes = read_nodes(data / FOLDER / "openb_node_list_gpu_node.csv")
    note = f"mean of {seeds} seeds; openb default, {sum(node.gpus for node in nodes):,} GPUs, 130% inflation"
    found = []
    for name, percent, make in PUBLISHED:
        ours = [allocated_at_full_demand(pods, nodes, make, FIRST_SEED + seed) for seed in range(seeds)]
        metric = f"GPUs allocated at 100% demand, {name}"
        found.append(Row(NAME, metric, "%", percent, float(np.mean(ours)), within=1.5, note=note))
    return found


def read_pods(path: Path) -> pl.DataFrame:
    """Every pod of an openb list in the columns of a trace; a trace itself leaves out pods that lived for 0 s."""
    gpus = pl.col("num_gpu")
    return pl.read_csv(path, schema_overrides={"gpu_spec": pl.String}).select(
        id="name",
        gpus=gpus,
        gpu_frac=pl.when(gpus > 0).then(pl.col("gpu_milli") / WHOLE_GPU_MILLI).otherwise(1.0),
        gpu_types=pl.col("gpu_spec").fill_null(""),
        cpus=pl.col("cpu_milli") / 1000,
        memory_bytes=pl.col("memory_mib") * float(MIB),
    )


def allocated_at_full_demand(pods: pl.DataFrame, nodes: Sequence[NodeRow], make: PlacerFactory, seed: int) -> float:
    """Percent of the GPUs that are allocated when the pods that have arrived ask for all of them."""
    rng = np.random.default_rng(seed)
    jobs = _declare(pods, nodes)
    asked_milli = np.array([shape.gpus * shape.milli for shape in jobs.shapes])[jobs.shape[: len(jobs)]]
    total_milli = sum(node.gpus for node in nodes) * WHOLE_GPU_MILLI
    stream = _arrivals(asked_milli, INFLATION * total_milli, rng)
    capacity = _cluster([nodes[row] for row in rng.permutation(len(nodes))])
    placer = make(jobs, seed)
    percent = 100 * np.cumsum(asked_milli[stream]) / total_milli
    stream = stream[: int(np.searchsorted(percent, 100.5, side="right"))]
    allocated = _offer(capacity, jobs, stream, placer) / total_milli * 100
    return float(allocated[np.round(percent[: len(stream)]) == 100].mean())


def _offer(capacity: Capacity, jobs: JobTable, stream: Array, placer: Placer) -> Array:
    """Thousandths of GPUs that are allocated after each arrival."""
    allocated = np.zeros(len(stream))
    for arrival, job in enumerate(stream.tolist()):
        shape = jobs.shape_of(job)
        placement = placer(capacity, shape, shape.gpus)
        if placement is not None:
            capacity.take(placement, shape)
            allocated[arrival] = placement.gpus * placement.milli
    return allocated.cumsum()


def _arrivals(asked_milli: Array, offered_milli: float, rng: np.random.Generator) -> Array:
    """Every pod once in random order, then pods drawn at random, up to the demand to offer."""
    if not asked_milli.any():
        raise GpuwiseError("none of the pods asks for a GPU; the experiment offers pods until they ask for all GPUs")
    drawn = rng.permutation(len(asked_milli))
    while asked_milli[drawn].sum() < offered_milli:
        drawn = np.concatenate([drawn, rng.integers(len(asked_milli), size=len(asked_milli))])
    return drawn[: int(np.searchsorted(asked_milli[drawn].cumsum(), offered_milli, side="right"))]


def _declare(pods: pl.DataFrame, nodes: Sequence[NodeRow]) -> JobTable:
    largest: dict[str, int] = {}
    for node in nodes:
        largest[node.gpu_type] = max(node.gpus, largest.get(node.gpu_type, 0))
    columns = pods.to_dict(as_series=False)
    asked = zip(columns["gpu_types"], columns["gpus"], strict=True)
    columns["gpu_types"] = [_types_of_one_node(text, gpus, largest) for text, gpus in asked]
    jobs = JobTable()
    jobs.declare_columns({**columns, "duration_s": [1.0] * pods.height})
    return jobs


def _types_of_one_node(text: str, gpus: int, largest: Mapping[str, int]) -> tuple[str, ...]:
    """The GPU types a pod may run on; it runs on one node, so only those whose nodes are large enough."""
    if not gpus or (gpus == 1 and not text):
        return ()
    named = text.split("|") if text else largest
    return tuple(name for name in named if largest.get(name, 0) >= gpus) or (NOWHERE,)


def _cluster(nodes: Sequence[NodeRow]) -> Capacity:
    table = NodeTable()
    for node in nodes:
        table.put(
            NodeSpec(
                name=node.name, gpu_type=node.gpu_type, gpus=node.gpus, cpus=node.cpus, memory_bytes=node.memory_bytes
            )
        )
    return Capacity(table)
