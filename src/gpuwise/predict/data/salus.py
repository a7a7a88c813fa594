"""Salus' peak memory of TensorFlow's CNN benchmarks (Yu and Chowdhury, MLSys'20; Apache-2.0 licence)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpuwise.predict.data.architectures import SALUS, architecture, memory_row
from gpuwise.predict.data.tables import columns, read_rows

MIB = 2.0**20
GPU = "P100"
"""Of the paper's testbed; the file does not say."""
OPTIMIZER_STATES = 0
"""Plain gradient descent, as the benchmarks have it unless told otherwise."""


def salus_memory(data: Path) -> dict[str, NDArray[Any]]:
    """A row for each job, with the columns of `MemoryNeed` and ``peak_bytes`` as TensorFlow's allocator counted it.

    Models without a known architecture are left out.
    """
    made = []
    for row in read_rows(data / "salus" / "workloads.csv"):
        batch = float(row["batch_size"])
        made_of = architecture(row["model"], SALUS)
        features = memory_row(made_of, batch, OPTIMIZER_STATES)
        if features is None:
            continue
        names = {"data": "salus", "label": f"salus_{row['model']}", "architecture": made_of.network}
        place = {"batch_size": batch, "gpu": GPU}
        kept = {"framework": "tensorflow", "measure": "allocator", "peak_bytes": float(row["peak_mem_mb"]) * MIB}
        made.append(names | place | kept | features)
    return columns(made)
