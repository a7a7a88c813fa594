"""The canonical trace: one row a job, sorted by submission, with these columns.

| column | type | default | meaning |
| --- | --- | --- | --- |
| id | str | row number | unique name of the job |
| submit_s | f64 | required | seconds since the start of the trace |
| duration_s | f64 | required | run time when run alone on what it asked for; above 0 |
| gpus | i64 | required | GPUs that start together (the gang); 0 for a job on CPUs only |
| min_gpus, max_gpus | i64 | gpus | elastic range; both equal gpus when the job cannot be resized |
| gpu_frac | f64 | 1 | share of each GPU it needs, above 0 and at most 1 |
| gpu_memory_bytes | f64 | 0 | memory on each GPU; 0 is unknown |
| gpu_types | str | "" | GPU types it may run on, joined by "|"; "" is any |
| sharing | str | "" | how it may hold a GPU, such as "exclusive|mig"; also time_slice, shared; "" is any |
| cpus | f64 | 0 | CPU cores of the whole job; 0 is not asked |
| memory_bytes | f64 | 0 | host memory of the whole job; 0 is not asked |
| priority | i64 | 0 | higher is more important |
| deadline_s | f64 | inf | on the clock of submit_s; inf is none |
| tenant | str | "" | who submitted it: user, account, virtual cluster |
| steps | f64 | duration_s | training steps; one a second when unknown |
| model | str | "" | name of the model, as the source spells it |
| batch_size | i64 | 0 | samples in a step over all GPUs; 0 is unknown |
| gpu_util_frac | f64 | nan | GPU utilization when alone; nan is unknown |
| speeds | str | "" | speed on GPU types relative to duration_s, such as "V100=1.5|A100/1g=0.3"; "" is unknown |
| suspend_s, resume_s, migrate_s, resize_s | f64 | 0 | what each of these costs the job |
| outcome | str | "" | how it ended originally: succeeded, failed, cancelled or "" |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

OUTCOMES = ("", "succeeded", "failed", "cancelled")
Values = pl.Series | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a number must be: bounds, and whether it must be whole or may be infinite or unknown."""

    expected: str
    low: float = -math.inf
    high: float = 1e18
    open_low: bool = False
    whole: bool = False
    inf: bool = False
    nan: bool = False

    def allows(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the values keep the rule."""
        above = values > self.low if self.open_low else values >= self.low
        good = above & (values <= self.high)
        if self.whole:
            good &= values == np.floor(values)
        if self.inf:
            good |= values == math.inf
        if self.nan:
            good |= np.isnan(values)
        return np.asarray(good, dtype=np.bool_)


SUBMIT = Rule("a time of at least 0 s", low=0)
DURATION = Rule("a duration above 0 s", low=0, open_low=True)
SECONDS = Rule("a number of seconds from 0", low=0)
GPUS = Rule("a whole number of GPUs from 0", low=0, high=1e9, whole=True)
FRACTION = Rule("a fraction above 0 and at most 1", low=0, high=1, open_low=True)
UTILIZATION = Rule("a utilization from 0 to 1", low=0, high=1, nan=True)
BYTES = Rule("a number of bytes from 0", low=0)
CPUS = Rule("a number of CPU cores from 0", low=0)
PRIORITY = Rule("a whole number", low=-1e15, high=1e15, whole=True)
DEADLINE = Rule("a deadline in s, or inf", low=0, inf=True)
STEPS = Rule("a number of steps above 0", low=0, open_low=True)
BATCH = Rule("a whole batch size from 0", low=0, high=1e15, whole=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the canonical trace: its type, its default and the rule its numbers keep."""

    dtype: type[pl.DataType]
    default: float | str | None = None  # None: required
    rule: Rule | None = None
    same_as: str | None = None  # the column the default is taken from


TRACE_SCHEMA: dict[str, Column] = {
    "id": Column(pl.String, ""),
    "submit_s": Column(pl.Float64, None, SUBMIT),
    "duration_s": Column(pl.Float64, None, DURATION),
    "gpus": Column(pl.Int64, None, GPUS),
    "min_gpus": Column(pl.Int64, 0, GPUS, same_as="gpus"),
    "max_gpus": Column(pl.Int64, 0, GPUS, same_as="gpus"),
    "gpu_frac": Column(pl.Float64, 1.0, FRACTION),
    "gpu_memory_bytes": Column(pl.Float64, 0.0, BYTES),
    "gpu_types": Column(pl.String, ""),
    "sharing": Column(pl.String, ""),
    "cpus": Column(pl.Float64, 0.0, CPUS),
    "memory_bytes": Column(pl.Float64, 0.0, BYTES),
    "priority": Column(pl.Int64, 0, PRIORITY),
    "deadline_s": Column(pl.Float64, math.inf, DEADLINE),
    "tenant": Column(pl.String, ""),
    "steps": Column(pl.Float64, 0.0, STEPS, same_as="duration_s"),
    "model": Column(pl.String, ""),
    "batch_size": Column(pl.Int64, 0, BATCH),
    "gpu_util_frac": Column(pl.Float64, math.nan, UTILIZATION),
    "speeds": Column(pl.String, ""),
    "suspend_s": Column(pl.Float64, 0.0, SECONDS),
    "resume_s": Column(pl.Float64, 0.0, SECONDS),
    "migrate_s": Column(pl.Float64, 0.0, SECONDS),
    "resize_s": Column(pl.Float64, 0.0, SECONDS),
    "outcome": Column(pl.String, ""),
}
REQUIRED = tuple(name for name, column in TRACE_SCHEMA.items() if column.default is None)


def complete(columns: Mapping[str, Values]) -> pl.DataFrame:
    """The canonical frame from some of its columns: defaults filled in, in order, sorted by submission."""
    rows = len(columns["submit_s"])
    filled: dict[str, Values] = dict(columns)
    for name, column in TRACE_SCHEMA.items():
        if name in filled:
            continue
        if name == "id":
            filled[name] = pl.Series(range(rows), dtype=pl.Int64)
        elif column.same_as is not None:
            filled[name] = filled[column.same_as]
        else:
            filled[name] = pl.repeat(column.default, rows, dtype=column.dtype, eager=True)
    series = [pl.Series(name, filled[name]).cast(column.dtype) for name, column in TRACE_SCHEMA.items()]
    return pl.DataFrame(series).sort("submit_s", maintain_order=True)
