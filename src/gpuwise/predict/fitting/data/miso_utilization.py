"""MISO's utilization and memory of training jobs on a whole A100 (Li et al., SoCC'22; MIT licence)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.architectures import MISO, architecture, utilization_row
from gpuwise.predict.fitting.data.memory_tables import Peak, memory_table
from gpuwise.predict.fitting.data.miso import GPU, TIMES, UTILIZATION, WHOLE
from gpuwise.predict.fitting.data.tables import columns, read_rows, tell, tell_strangers

OPTIMIZER_STATES = 2
"""Adam, in nearly all of the training scripts."""


def miso_memory(data: Path) -> dict[str, NDArray[Any]]:
    """A row for each model and batch size, with the columns of `MemoryNeed` and ``peak_bytes`` as nvidia-smi saw it.

    All are TensorFlow with a pool that grows. Models without a known architecture are left out.
    """
    rows = read_rows(data / "miso" / UTILIZATION, ("batch_size", "memory_mb"))
    peaks = (Peak(row["model"], row["batch_size"], GPU, row["memory_mb"]) for row in rows)
    return memory_table("miso", peaks, framework="tensorflow", measure="device", states=OPTIMIZER_STATES, known=MISO)


def miso_utilization(data: Path) -> dict[str, NDArray[Any]]:
    """A row for each model and batch size, with the columns of `GpuUtilization` and ``util_pct`` as nvidia-smi saw it.

    The median iteration on the whole GPU stands in for what a time model says of a step; where it was not measured,
    it is not known. Memory bandwidth utilization and power, measured beside it, are not given.
    """
    step_s = _step_times(data)
    made, strange = [], set()
    for row in read_rows(data / "miso" / UTILIZATION, ("batch_size", "sm_util_pct")):
        model, batch = row["model"], row["batch_size"]
        made_of = architecture(model, MISO)
        work = utilization_row(made_of, batch, GPU)
        if work is None:
            strange.add(model)
            continue
        seconds = step_s.get((model, batch), np.nan)
        share = min(work["busy_time_s"] / seconds, 1.0)
        names = {"data": "miso", "testbed": "miso", "label": f"miso_{model}", "architecture": made_of.network}
        kept = {"util_pct": row["sm_util_pct"], "step_time_s": seconds, "busy_frac": share}
        made.append({**names, **kept, **work})
    tell_strangers("miso", strange)
    return columns(made)


def _step_times(data: Path) -> dict[tuple[str, float], float]:
    try:
        rows = read_rows(data / "miso" / TIMES, ("batch_size", "compute_slices", "median_iter_s"))
    except PredictionError as error:
        tell(f"step times of MISO's jobs: {error}")
        return {}
    return {(row["model"], row["batch_size"]): row["median_iter_s"] for row in rows if row["compute_slices"] == WHOLE}
