"""MISO's times of training steps on slices of an A100 (Li et al., SoCC'22; MIT licence)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.mig import slice_fractions

GPU = "A100"


def mig_times(data: Path, statistic: str = "mean") -> dict[str, NDArray[Any]]:
    """A row for each model, batch size and slice smaller than the whole GPU.

    ``time_s`` is the ``statistic`` (mean or median) over the iterations on the slice, ``step_time_s`` the same on the
    whole GPU (7 slices). Where the whole GPU was not measured there is nothing to compare with: the row is left out.
    """
    used = _utilization(data)
    rows = _read(data / "miso" / "mig_iteration_time_summary.csv")
    time = {_key(row): float(row[f"{statistic}_iter_s"]) for row in rows}
    most = max(int(row["compute_slices"]) for row in rows)
    whole = {key[:2]: seconds for key, seconds in time.items() if key[2] == most}
    kept = [row for row in rows if _key(row)[2] < most and _key(row)[:2] in whole]
    usage = [used.get(_key(row)[:2], (np.nan, np.nan)) for row in kept]
    profiles = [f"{row['compute_slices']}g.{row['memory_gb']}gb" for row in kept]
    return {
        "model": np.array([row["model"] for row in kept]),
        "batch_size": np.array([float(row["batch_size"]) for row in kept]),
        "profile": np.array(profiles),
        "step_time_s": np.array([whole[_key(row)[:2]] for row in kept]),
        "gpu_util_frac": np.array([each[0] for each in usage]),
        "mem_util_frac": np.array([each[1] for each in usage]),
        "time_s": np.array([time[_key(row)] for row in kept]),
        **slice_fractions(GPU, profiles),
    }


def _utilization(data: Path) -> dict[tuple[str, float], tuple[float, float]]:
    rows = _read(data / "miso" / "utilization_summary_a100.csv")
    return {
        (row["model"], float(row["batch_size"])): (
            float(row["sm_util_pct"]) / 100.0,
            float(row["mem_bw_util_pct"]) / 100.0,
        )
        for row in rows
    }


def _key(row: dict[str, str]) -> tuple[str, float, int]:
    return row["model"], float(row["batch_size"]), int(row["compute_slices"])


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
