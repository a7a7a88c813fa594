"""MISO's times of training steps on slices of an A100 (Li et al., SoCC'22; MIT licence)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.devices.mig import mig_profiles
from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import log_left_out, read_rows
from gpuwise.predict.sharing.mig import slice_fractions

GPU = "A100"
WHOLE = 7
"""Compute slices of the whole GPU."""
SLICES = {each.name for each in mig_profiles(GPU) if each.compute_slices < WHOLE}
TIMES, UTILIZATION = "mig_iteration_time_summary.csv", "utilization_summary_a100.csv"


def mig_times(data: Path, statistic: str = "mean") -> dict[str, NDArray[Any]]:
    """A row for each model, batch size and slice smaller than the whole GPU.

    ``time_s`` is the ``statistic`` (mean or median) over the iterations on the slice, ``step_time_s`` the same on the
    whole GPU (7 slices). Where the whole GPU was not measured there is nothing to compare with: the row is left out.
    """
    used = _utilization(data)
    path, column = data / "miso" / TIMES, f"{statistic}_iter_s"
    rows = read_rows(path, ("compute_slices", "memory_gb", "batch_size", column))
    time = {_key(row): row[column] for row in rows}
    whole = {key[:2]: seconds for key, seconds in time.items() if key[2] == WHOLE}
    kept = [row for row in rows if _profile(row) in SLICES and _key(row)[:2] in whole]
    odd = sorted({_profile(row) for row in rows if row["compute_slices"] < WHOLE} - SLICES)
    if odd:
        log_left_out(f"slices of {path} that an {GPU} does not have: {', '.join(odd)}")
    if not kept:
        raise PredictionError(f"{path} has no job that ran on a slice of an {GPU} and on all {WHOLE} slices of it")
    usage = [used.get(_key(row)[:2], (np.nan, np.nan)) for row in kept]
    profiles = [_profile(row) for row in kept]
    return {
        "model": np.array([row["model"] for row in kept]),
        "batch_size": np.array([row["batch_size"] for row in kept]),
        "profile": np.array(profiles),
        "step_time_s": np.array([whole[_key(row)[:2]] for row in kept]),
        "gpu_util_frac": np.array([each[0] for each in usage]),
        "mem_util_frac": np.array([each[1] for each in usage]),
        "time_s": np.array([time[_key(row)] for row in kept]),
        **slice_fractions(GPU, profiles),
    }


def _utilization(data: Path) -> dict[tuple[str, float], tuple[float, float]]:
    try:
        rows = read_rows(data / "miso" / UTILIZATION, ("batch_size",), ("sm_util_pct", "mem_bw_util_pct"))
    except PredictionError as error:
        log_left_out(f"utilization of MISO's jobs: {error}")
        return {}
    return {
        (row["model"], row["batch_size"]): (row["sm_util_pct"] / 100.0, row["mem_bw_util_pct"] / 100.0) for row in rows
    }


def _key(row: dict[str, Any]) -> tuple[str, float, int]:
    return row["model"], row["batch_size"], int(row["compute_slices"])


def _profile(row: dict[str, Any]) -> str:
    return f"{row['compute_slices']:g}g.{row['memory_gb']:g}gb"
