"""Readers of cluster files that come with traces: openb's node lists and Tiresias' and Muri's cluster specs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuwise.sim.traces.errors import BadRow, TraceError, shown
from gpuwise.sim.traces.rows import Rows, read_rows
from gpuwise.sim.traces.schema import CPUS, GPUS, Rule
from gpuwise.sim.traces.source import open_source

OPENB_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
SPEC_COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
COUNT = Rule("a whole number from 1", low=1, high=1e6, whole=True)
MEMORY = Rule("an amount of memory from 0", low=0)
MAX_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node of a cluster file; ``gpu_type`` is "" where the file does not say."""

    name: str
    gpu_type: str
    gpus: int
    cpus: float
    memory_bytes: float


def read_nodes(path: str | Path) -> list[NodeRow]:
    """The nodes of a cluster file: an openb node list, or a cluster spec of Tiresias or Muri (memory in GiB)."""
    rows = read_rows(open_source(path))
    if all(name in rows for name in OPENB_COLUMNS):
        nodes = _openb_nodes(rows)
    elif all(name in rows for name in SPEC_COLUMNS):
        nodes = _spec_nodes(rows)
    else:
        raise TraceError(
            f"{path}: not a cluster file; its columns are {shown(','.join(rows.cells.columns))}, not "
            f"{','.join(OPENB_COLUMNS)} (openb) or {','.join(SPEC_COLUMNS)} (Tiresias, Muri)"
        )
    if not nodes:
        raise TraceError(f"{path}: no nodes in it, only a header")
    return nodes


def _openb_nodes(rows: Rows) -> list[NodeRow]:
    names = rows.unique("sn").to_list()
    models = rows.text("model").to_list()
    gpus = rows.number("gpu", GPUS, default=0).astype(np.int64).tolist()
    cpus = (rows.number("cpu_milli", CPUS) / 1000).tolist()
    memory_bytes = (rows.number("memory_mib", MEMORY) * 2**20).tolist()
    _raise_bad(rows.bad)
    return [NodeRow(*fields) for fields in zip(names, models, gpus, cpus, memory_bytes, strict=True)]


def _spec_nodes(rows: Rows) -> list[NodeRow]:
    counts = rows.number("num_switch", COUNT) * rows.number("num_node_p_switch", COUNT)
    gpus = rows.number("num_gpu_p_node", GPUS)
    cpus = rows.number("num_cpu_p_node", CPUS)
    memory_bytes = rows.number("mem_p_node", MEMORY) * 2**30
    _raise_bad(rows.bad)
    if counts.sum() > MAX_NODES:
        raise TraceError(f"{rows.file}: {counts.sum():,.0f} nodes; at most {MAX_NODES:,} can be read")
    nodes: list[NodeRow] = []
    for row, count in enumerate(counts.astype(np.int64).tolist()):
        first = len(nodes)
        fields = ("", int(gpus[row]), float(cpus[row]), float(memory_bytes[row]))
        nodes.extend(NodeRow(f"node-{first + index}", *fields) for index in range(count))
    return nodes


def _raise_bad(bad: tuple[BadRow, ...]) -> None:
    if bad:
        raise TraceError.of_rows(bad)
