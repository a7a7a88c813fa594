"""Salus' peak memory of TensorFlow's CNN benchmarks (Yu and Chowdhury, MLSys'20; Apache-2.0 licence)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpuwise.predict.fitting.data.architectures import SALUS
from gpuwise.predict.fitting.data.memory_tables import Peak, memory_table
from gpuwise.predict.fitting.data.tables import read_rows

GPU = "P100"
"""Of the paper's testbed; the file does not say."""
OPTIMIZER_STATES = 0
"""Plain gradient descent, as the benchmarks have it unless told otherwise."""


def salus_memory(data: Path) -> dict[str, NDArray[Any]]:
    """A row for each job, with the columns of `MemoryNeed` and ``peak_bytes`` as TensorFlow's allocator counted it.

    Models without a known architecture are left out.
    """
    rows = read_rows(data / "salus" / "workloads.csv", ("batch_size", "peak_mem_mb"))
    peaks = (Peak(row["model"], row["batch_size"], GPU, row["peak_mem_mb"]) for row in rows)
    return memory_table(
        "salus", peaks, framework="tensorflow", measure="allocator", states=OPTIMIZER_STATES, known=SALUS
    )
