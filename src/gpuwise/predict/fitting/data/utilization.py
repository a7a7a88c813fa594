"""Measured GPU utilization, as the columns of `GpuUtilization`: MISO, and two printed tables for measuring errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.architectures import GANDIVA, MISO, architecture, utilization_row
from gpuwise.predict.fitting.data.miso import GPU, TIMES, UTILIZATION, WHOLE
from gpuwise.predict.fitting.data.tables import columns, log_left_out, log_unknown_models, read_rows

UNKNOWN = ("batch_size", "flops", "kernels", "busy_time_s", "parameter_bytes", "activation_bytes", "step_time_s")

_MLPERF = {  # average GPU utilization in percent on the V100; job time in seconds on the P100 and on the V100
    "IC": (95.4, 16384, 10873),
    "SSD": (59.8, 11538, 11352),
    "OD": (74.5, 10671, 8606),
    "RM": (44.3, 4147, 4174),
    "SA": (82.0, 6494, 4970),
    "RT": (95.5, 14728, 10098),
    "TL": (83.9, 16161, 10795),
    "SR": (65.1, 54454, 39212),
    "RF": (62.7, 22117, 20760),
}
_SAME = {"IC": GANDIVA["ResNet-50"].network, "SR": MISO["deepspeech2"].network}
"""The reference networks of MLPerf 0.5 that other data sets have, too."""
_V100_TFLOPS, _P100_TFLOPS = 14.90, 9.318
"""FP32, as the same slides have it."""
_PACKING = {  # GPU utilization in percent, minibatches a second when time-sliced on a P40
    "VAE": (8.7, 81.8),
    "SuperResolution": (14.1, 40.3),
    "RHN": (61.6, 10.1),
    "SCRNN": (66.8, 16.7),
    "MI-LSTM": (76.2, 22.2),
    "LSTM": (87.2, 63.8),
    "ResNet-50": (94.0, 10.3),
    "ResNext-50": (98.9, 83.6),
}
_BATCH = {"VAE": 128.0, "SuperResolution": 4.0, "LSTM": 20.0, "ResNet-50": 32.0, "ResNext-50": 32.0}
"""Not printed: the first three are the settings of the examples, the last two are assumed."""


def miso_utilization(data: Path) -> dict[str, NDArray[Any]]:
    """MISO's jobs on an A100, ``util_pct`` as nvidia-smi saw it (Li et al., SoCC'22; MIT licence).

    The median iteration on the whole GPU stands in for what a time model says of a step; where it was not measured,
    it is not known. Memory bandwidth utilization and power, measured beside it, are not given.
    """
    step_s = _step_times(data)
    made, unknown = [], set()
    for row in read_rows(data / "miso" / UTILIZATION, ("batch_size", "sm_util_pct")):
        model, batch = row["model"], row["batch_size"]
        made_of = architecture(model, MISO)
        work = utilization_row(made_of, batch, GPU)
        if work is None:
            unknown.add(model)
            continue
        seconds = step_s.get((model, batch), np.nan)
        share = min(work["busy_time_s"] / seconds, 1.0)
        names = {"data": "miso", "testbed": "miso", "label": f"miso_{model}", "architecture": made_of.network}
        kept = {"util_pct": row["sm_util_pct"], "step_time_s": seconds, "busy_frac": share}
        made.append({**names, **kept, **work})
    log_unknown_models("miso", unknown)
    return columns(made)


def mlperf_utilization() -> dict[str, NDArray[Any]]:
    """MLPerf 0.5 on a V100: Takayama et al., Deep Learning Workload Analysis for Efficient Resource Allocation, slides.

    Batch sizes and step times are not printed. The share of time in which the device is busy comes from the job's times
    on two GPUs: only arithmetic is R times faster on the V100, so of a job that is r times faster there a share
    (r − 1)/(R − 1) is arithmetic. The device is busy for at least that, and for at most all of the time, since kernels
    that wait for memory or are too short gain less: the middle of both is taken.
    """
    made = []
    for model, (percent, p100_s, v100_s) in _MLPERF.items():
        share = min(max((p100_s / v100_s - 1.0) / (_V100_TFLOPS / _P100_TFLOPS - 1.0), 0.0), 1.0)
        made.append(_row("mlperf", model, _SAME.get(model, model), percent, {"busy_frac": (1.0 + share) / 2.0}))
    return columns(made)


def packing_utilization() -> dict[str, NDArray[Any]]:
    """Jobs on a P40: table 1 of Xiao et al., Gandiva, OSDI'18, as in a lecture of COMS E6998 (Columbia, 2019)."""
    made = []
    for model, (percent, per_s) in _PACKING.items():
        work = utilization_row(GANDIVA[model], _BATCH[model], "P40") if model in GANDIVA else None
        share = np.nan if work is None else min(work["busy_time_s"] * per_s, 1.0)
        network = GANDIVA[model].network if model in GANDIVA else model
        known = {**(work or {}), "step_time_s": 1.0 / per_s, "busy_frac": share}
        made.append(_row("gandiva", model, network, percent, known))
    return columns(made)


def _step_times(data: Path) -> dict[tuple[str, float], float]:
    try:
        rows = read_rows(data / "miso" / TIMES, ("batch_size", "compute_slices", "median_iter_s"))
    except PredictionError as error:
        log_left_out(f"step times of MISO's jobs: {error}")
        return {}
    return {(row["model"], row["batch_size"]): row["median_iter_s"] for row in rows if row["compute_slices"] == WHOLE}


def _row(testbed: str, model: str, network: str, percent: float, known: dict[str, float]) -> dict[str, Any]:
    names = {"data": testbed, "testbed": testbed, "label": f"{testbed}_{model}", "architecture": network}
    return {**names, "util_pct": percent, **dict.fromkeys(UNKNOWN, np.nan), **known}
