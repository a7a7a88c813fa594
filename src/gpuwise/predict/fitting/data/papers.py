"""GPU utilization as printed in two sources; used to measure errors, not to fit what is shipped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.fitting.data.architectures import GANDIVA, MISO, utilization_row
from gpuwise.predict.fitting.data.tables import columns

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
"""Not printed: the first three are the examples' own settings, the last two are assumed."""


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


def _row(testbed: str, model: str, network: str, percent: float, known: dict[str, float]) -> dict[str, Any]:
    names = {"data": testbed, "testbed": testbed, "label": f"{testbed}_{model}", "architecture": network}
    return {**names, "util_pct": percent, **dict.fromkeys(UNKNOWN, np.nan), **known}
