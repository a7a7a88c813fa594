"""The canonical trace: one row per job, sorted by submission, a column for each property of a `JobSpec`.

``submit_s``, ``duration_s`` and ``gpus`` are required; everything else has the default of the property, where its
meaning is said, too. Several values of one cell are joined by "|": ``gpu_types`` as ``A100|V100``, ``sharing`` as
``exclusive|mig``, ``speeds`` as ``V100=1.5|A100/1g=0.3``, ``require`` as ``zone=a,b|rack=7``, ``roles`` as
``ps:2,cpus=4|worker:8,gpus=1``. Unknown numbers (``steps``, ``gpu_util_frac``, ends of intervals) are ``nan`` or empty.
``outcome`` is how a job ended originally: succeeded, failed, cancelled or "".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuwise.core.job.kinds import UNITS, Number, Whole
from gpuwise.core.job.schema import Entry, entries
from gpuwise.core.job.spec import JobSpec

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


def rule_of(name: str) -> Rule:
    """What the numbers of a job's property must be, as its declaration says."""
    entry = JOB[name]
    about, noun = entry.about, UNITS.get(entry.about.unit, entry.kind.noun)
    unknown = about.or_nan or entry.default is None
    return Rule(
        about.expected(noun), about.low, min(about.high, 1e18), about.above, isinstance(entry.kind, Whole),
        about.or_inf, unknown,
    )  # fmt: skip


JOB = entries(JobSpec)
SUBMIT, DURATION, GPUS, PRIORITY, BATCH = map(rule_of, ("submit_s", "duration_s", "gpus", "priority", "batch_per_gpu"))
STEPS = replace(rule_of("steps"), nan=False)
SECONDS = Rule("a number of seconds from 0", low=0)
CPUS = Rule("a number of CPU cores from 0", low=0)
"""Of nodes, and in thousandths of a core."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the canonical trace: its type, its default and the rule its numbers keep."""

    dtype: type[pl.DataType]
    default: float | str | None = None  # None: required
    rule: Rule | None = None
    same_as: str | None = None  # the column the default is taken from


REQUIRED = ("submit_s", "duration_s", "gpus")
_SAME_AS = {"min_gpus": "gpus", "max_gpus": "gpus"}


def _column(name: str, entry: Entry) -> Column:
    if not isinstance(entry.kind, Number):
        return Column(pl.String, "" if entry.required else entry.kind.cell(entry.default))
    default = math.nan if entry.default is None else entry.default
    if name in _SAME_AS:
        default = 0
    dtype = pl.Int64 if isinstance(entry.kind, Whole) else pl.Float64
    return Column(dtype, None if name in REQUIRED else default, rule_of(name), _SAME_AS.get(name))


TRACE_SCHEMA: dict[str, Column] = {
    name: _column(name, JOB[name]) for name in dict.fromkeys(("id", *REQUIRED, *JOB)) if JOB[name].about.in_trace
} | {"outcome": Column(pl.String, "")}
"""Every property of a job that a trace may have; outcome is how it ended originally."""
OLD_BATCH = "batch_size"
"""What versions before ``batch_per_gpu`` wrote: samples in a step over all GPUs."""


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


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a cluster file; ``gpu_type`` is "" where the file does not say."""

    name: str
    gpu_type: str
    gpus: int
    cpus: float
    memory_bytes: float
