"""Gavel's measurements: step times of jobs alone, and the speeds of two on one GPU (OSDI'20; MIT licence)."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Floats, PredictionError
from gpuwise.predict.fitting.data.tables import named_columns, read_json
from gpuwise.predict.time.gpu_rates import canonical

ALONE = "null"
SPREAD = "_unconsolidated"
_NAMED = re.compile(r"^(?P<model>.+?) \(batch size (?P<batch>\d+)\)$")
_NAME = re.compile(r"(?P<model>.*?)(?: \(batch size (?P<batch>\d+)\))?")
_GPU_BOUND_PERCENTILE = 90.0
_LEAST_UTIL = 0.05

Solo = dict[str, dict[str, float]]
"""Steps (or samples) per second alone, by GPU and job."""
Shared = tuple[str, str, str, float, float]
"""GPU, two jobs, and what each reaches beside the other."""


def isolated(data: Path, name: str = "simulation_throughputs.json") -> dict[str, NDArray[Any]]:
    """Step times of jobs that have their GPUs to themselves.

    Columns: ``model``, ``gpu``, ``batch`` (per GPU; nan where the job's name has none), ``gpus``, ``nodes`` (1 where
    the placement is consolidated, else one GPU in each), ``step_time_s``. The file has the steps of all workers
    together, so a step takes workers / throughput. What does not fit (0) is left out, and so is one GPU
    "spread" over nodes, which repeats one GPU.
    """
    path = data / "gavel" / name
    rows = [row for place, jobs in read_json(path).items() for row in _rows(place, jobs)]
    return named_columns(("model", "gpu", "batch", "gpus", "nodes", "step_time_s"), rows, path)


def job_of(key: str) -> tuple[str, int]:
    """The title of a job and its number of GPUs, from a key like ``('LM (batch size 5)', 1)``."""
    try:
        title, gpus = ast.literal_eval(key)
        return str(title), int(gpus)
    except (ValueError, SyntaxError, TypeError) as error:
        raise PredictionError(f"gavel's job {key!r}; one like ('LM (batch size 5)', 1) is expected") from error


def rate_of(given: Any) -> float:
    """A rate as the file has it; 0 where it has none."""
    return float(given) if isinstance(given, (int, float)) and np.isfinite(given) else 0.0


def colocated_pairs(data: Path) -> dict[str, NDArray[Any]]:
    """Two rows for each pair of single-GPU jobs on each GPU type, as `Interference` takes them, and their ``speed``.

    ``gpu_util_frac`` was not measured: see `busy_fractions` for how it is derived from the solo times.
    """
    path = data / "gavel" / "simulation_throughputs.json"
    solo: Solo = {}
    shared: list[Shared] = []
    for gpu, jobs in read_json(path).items():
        if gpu.endswith(SPREAD):  # for one GPU the same numbers again
            continue
        single = {key: job_of(key)[0] for key in jobs if job_of(key)[1] == 1}
        alone = {name: rate_of(jobs[key].get(ALONE)) for key, name in single.items()}
        solo[gpu] = {name: rate for name, rate in alone.items() if rate > 0}
        both = (
            (name, single[key], rates)
            for own, name in single.items()
            for key, rates in jobs[own].items()
            if key in single
        )
        shared += _once((gpu, one, two, rate_of(rates[0]), rate_of(rates[1])) for one, two, rates in both)
    return _columns(solo, shared, path, steps=True)


def colocated_matrix(data: Path) -> dict[str, NDArray[Any]]:
    """Like `colocated_pairs`, of the nine networks on the branch packing_experiment.

    Rates there are in steps for some jobs and in samples for others, so ``step_time_s`` is unknown (NaN).
    """
    path = data / "gavel" / "packing_experiment_branch" / "perf_prediction_measurements.csv"
    solo: Solo = {}
    shared: list[Shared] = []
    gpu, names = "", [""]
    if not path.is_file():
        raise PredictionError(f"there is no table {path}")
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if row[0] and not row[1]:
                gpu = row[0]
                solo[gpu] = {}
            elif row[2] and not row[0]:
                names = row[2:]
            elif row[0]:
                solo[gpu][row[0]] = float(row[1])
                cells = [(name, cell.split(",")) for name, cell in zip(names, row[2:], strict=True) if cell]
                shared += [(gpu, row[0], name, float(rates[0]), float(rates[1])) for name, rates in cells]
    return _columns(solo, shared, path, steps=False)


def busy_fractions(times: dict[str, Floats]) -> dict[str, Floats]:
    """The share of a solo step in which the GPU is busy, derived from its times on several types of GPU.

    Host work takes as long beside any GPU, GPU work is R times faster on a faster one: of a step that is r times faster
    there, a share (r − 1)/(R − 1) is GPU work. R is the ratio that nine in ten jobs do not exceed. Each type is
    compared with the slowest, the slowest with the next; NaN where a job was measured on one type alone.
    """
    busy = {gpu: np.full(len(time), np.nan) for gpu, time in times.items()}
    measured = {gpu: time for gpu, time in times.items() if np.any(np.isfinite(time))}
    slowest, *faster = sorted(measured, key=lambda gpu: -float(np.nanmedian(measured[gpu])))
    for gpu in reversed(faster):
        ratio = times[slowest] / times[gpu]
        if np.any(np.isfinite(ratio)):
            most = max(float(np.nanpercentile(ratio, _GPU_BOUND_PERCENTILE)), 1.01)
            busy[gpu] = np.clip((ratio - 1.0) / (most - 1.0), _LEAST_UTIL, 1.0)
            busy[slowest] = np.clip(busy[gpu] * most / ratio, _LEAST_UTIL, 1.0)
    return busy


def _rows(place: str, jobs: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, float, float, float, float]]:
    spread = place.endswith(SPREAD)
    for key, rates in jobs.items():
        title, gpus = job_of(key)
        rate = rate_of(rates.get(ALONE))
        if rate <= 0.0 or (spread and gpus == 1):
            continue
        named = _NAMED.match(title)
        model, batch = (named["model"], float(named["batch"])) if named else (title, np.nan)
        yield model, place.removesuffix(SPREAD), batch, float(gpus), float(gpus if spread else 1), gpus / rate


def _once(pairs: Iterator[Shared]) -> list[Shared]:
    """Pairs are stored from both sides: keeps one of them."""
    return list({(gpu, *sorted((one, two))): (gpu, one, two, a, b) for gpu, one, two, a, b in pairs}.values())


def _columns(solo: Solo, shared: list[Shared], path: Path, *, steps: bool) -> dict[str, NDArray[Any]]:
    """Rows for both jobs of each pair in which both ran (a rate of 0 is a pair that does not fit)."""
    kept = [pair for pair in shared if min(pair[3:]) > 0 and {pair[1], pair[2]} <= solo[pair[0]].keys()]
    if not kept:
        raise PredictionError(f"no two jobs shared a GPU in {path}")
    both = [((gpu, one, a), (gpu, two, b)) for gpu, one, two, a, b in kept]
    rows = [row for pair in both for row in pair]
    groups = [f"{gpu}: {one} + {two}" for gpu, one, two, _, _ in kept for _ in range(2)]
    jobs = sorted({name for rates in solo.values() for name in rates})
    times = {gpu: np.array([1.0 / rates.get(name, np.nan) for name in jobs]) for gpu, rates in solo.items()}
    busy = busy_fractions(times)
    at = {name: number for number, name in enumerate(jobs)}
    alone = np.array([times[gpu][at[name]] for gpu, name, _ in rows])
    named = [_NAME.fullmatch(name) for _, name, _ in rows]
    rate = np.array([rate for _, _, rate in rows])
    return {
        "group": np.array(groups),
        "gpu": np.array(canonical([gpu for gpu, _, _ in rows])),
        "model": np.array([found["model"] for found in named if found]),
        "batch_size": np.array([float(found["batch"] or 1) for found in named if found]),
        "step_time_s": alone if steps else np.full(len(rows), np.nan),
        "gpu_util_frac": np.array([busy[gpu][at[name]] for gpu, name, _ in rows]),
        "speed": np.minimum(rate * alone, 1.0),  # the matrix has some above their solo speed
    }
