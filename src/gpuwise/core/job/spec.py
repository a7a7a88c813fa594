"""A job as the engine knows it, and what must be true of the properties of a job together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from gpuwise.core.job.needs import Forecast, JobNeeds, Source
from gpuwise.core.job.property import Property, PropertyError
from gpuwise.core.job.schema import check


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(JobNeeds):
    """A training job as the engine knows it: what its user declares, with what is forecast of it."""

    # fmt: off
    id: Annotated[str, Property(help="Unique name of the job.")]
    submit_s: Annotated[float, Property(
        help="When it is submitted, in seconds since the start.", noun="a time", unit="s", low=0, high=1e18, column="f8"
    )] = 0.0
    duration_s: Annotated[float, Property(
        help="Forecast run time, alone, on the GPUs it asks for.", noun="a duration", unit="s", low=0, above=True,
        high=1e18, column="f8",
    )]
    duration_low_s: Annotated[float, Property(
        help="Lower end of the forecast of duration_s.", unit="s", low=0, high=1e18, or_nan=True, column="f8"
    )] = math.nan
    duration_high_s: Annotated[float, Property(
        help="Upper end of the forecast of duration_s.", unit="s", low=0, high=1e18, or_nan=True, column="f8"
    )] = math.nan
    duration_source: Annotated[Source, Property(
        help="Where duration_s comes from.", column="i1", coded=True
    )] = Source.DECLARED
    deadline_s: Annotated[float, Property(
        help="When it should have ended, on the clock of submit_s; inf is none.", noun="a deadline in s", unit="s",
        or_inf=True, column="f8",
    )] = math.inf
    tenant: Annotated[str, Property(
        help="Whose share it counts against: user, queue, account, virtual cluster.", column="i4", coded=True
    )] = ""
    # fmt: on

    def __post_init__(self) -> None:
        check(self, f"job {self.id!r}")
        check_together(self, f"job {self.id!r}")

    @property
    def duration(self) -> Forecast:
        """What is forecast of its run time."""
        return Forecast(self.duration_s, self.duration_low_s, self.duration_high_s, self.duration_source)


def check_together(job: JobNeeds, of: str = "") -> None:
    """Raises `PropertyError` if the properties of a job contradict each other."""
    low, high = job.gpu_range

    def require(name: str, met: bool, expected: str) -> None:
        if not met:
            raise PropertyError(name, getattr(job, name), expected, of)

    require("gpus", low <= job.gpus <= high, "between min_gpus and max_gpus")
    require("min_gpus", low > 0 or high == 0, "1 or more, unless the job asks for no GPU at all")
    require("gpu_frac", job.gpu_frac == 1 or (low, high) == (1, 1), "1 unless the job asks for one GPU")
    for value, lower, upper in INTERVALS:
        if hasattr(job, value):
            _check_interval(job, value, lower, upper, of)
    if job.roles:
        _check_roles(job, of)


INTERVALS = (
    ("duration_s", "duration_low_s", "duration_high_s"),
    ("predicted_s", "predicted_low_s", "predicted_high_s"),
    ("gpu_memory_bytes", "gpu_memory_low_bytes", "gpu_memory_high_bytes"),
    ("gpu_util_frac", "gpu_util_low_frac", "gpu_util_high_frac"),
)
"""Forecasts with the ends of their intervals."""


def _check_interval(job: JobNeeds, value: str, lower: str, upper: str, of: str) -> None:
    """The ends of an interval may be unknown, but not on the wrong side of the value."""
    middle, low, high = getattr(job, value), getattr(job, lower, None), getattr(job, upper, None)
    if middle is None:
        return
    if low is not None and low > middle:
        raise PropertyError(lower, low, f"at most {value}, which is {middle!r}", of)
    if high is not None and high < middle:
        raise PropertyError(upper, high, f"at least {value}, which is {middle!r}", of)


def _check_roles(job: JobNeeds, of: str) -> None:
    """The roles make up the whole job."""
    names = [role.name for role in job.roles]
    if len(set(names)) < len(names):
        raise PropertyError("roles", names, "roles with different names", of)
    fewest = sum(role.count_range[0] * role.gpus for role in job.roles)
    usual = sum(role.count * role.gpus for role in job.roles)
    most = sum(role.count_range[1] * role.gpus for role in job.roles)
    for name, stated, total in (
        ("gpus", job.gpus, usual), ("min_gpus", job.gpu_range[0], fewest), ("max_gpus", job.gpu_range[1], most)
    ):  # fmt: skip
        if stated != total:
            raise PropertyError(name, stated, f"{total}, as many as its roles have together", of)
    for name in ("cpus", "memory_bytes"):
        if getattr(job, name):
            raise PropertyError(name, getattr(job, name), "0, since each role has its own", of)
