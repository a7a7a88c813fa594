"""What a policy sees of a job and its user may declare: the one list of a job's properties.

`JobSpec` (a job as the engine knows it) and `JobRequest` (a job as its user asks for it) build on `JobNeeds`. To add a
property, add it here; see "Where do I change what" in docs/architecture.md.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Annotated

from gpuwise.core.job.property import Property, PropertyError
from gpuwise.core.job.schema import LabelValues, check
from gpuwise.core.units import WHOLE_GPU_MILLI

MOST_GPUS = 65_536
MOST_BYTES = 2.0**60
MOST_SECONDS = 1e10
MOST_TASKS = 10_000
ON_ONE_NODE = "node"
"""What ``within`` says of a job whose GPUs must all be on one node."""
_KEY = r"[A-Za-z0-9][\w.\-/]{0,127}"


class Sharing(enum.IntEnum):
    """How a job uses a GPU."""

    EXCLUSIVE = 0
    """Alone on whole GPUs."""
    TIME_SLICE = 1
    """Turn by turn with its neighbours, each for its share of the time."""
    SHARED = 2
    """At the same time as its neighbours, through MPS or plain process sharing."""
    MIG = 3
    """On a hardware slice of a partitioned GPU."""


EXCLUSIVE = Sharing.EXCLUSIVE
"""For code that runs for every event: to look up a member of an enumeration takes four times as long."""
ANY_SHARING: frozenset[Sharing] = frozenset(Sharing)


def sharing_only(sharing: frozenset[Sharing]) -> str:
    """For messages: how a job that may not have a GPU alone may use one, such as ``, as mig only``."""
    ways = " or ".join(each.name.lower().replace("_", "-") for each in sorted(sharing))
    return "" if Sharing.EXCLUSIVE in sharing else f", as {ways} only"


COMPUTE_SLICES = 7
"""Compute slices of a GPU with MIG, of which a slice has one or more."""
FEWER_COMPUTE_SLICES = {"A30": 4, "RTXPRO6000": 4, "RTXPRO4500": 2}


def slice_name(gpu_type: str, milli: int) -> str:
    """What ``speeds`` call a MIG slice with ``milli`` thousandths of a GPU: ``A100/2g``."""
    whole = FEWER_COMPUTE_SLICES.get(gpu_type, COMPUTE_SLICES)
    return f"{gpu_type}/{max(1, round(milli * whole / WHOLE_GPU_MILLI))}g"


class Source(enum.StrEnum):
    """Where a forecast comes from."""

    DECLARED = "declared"
    """Its user says so."""
    HISTORY = "history"
    """Earlier runs of the same command."""
    OBSERVED = "observed"
    """What was measured while it ran."""
    PREDICTED = "predicted"
    """A predictor, from its model."""
    DEFAULT = "default"
    """Not known; something had to be assumed."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A number that is not known for certain; NaN as an end of the interval is not known."""

    value: float
    low: float = math.nan
    high: float = math.nan
    source: Source = Source.DECLARED


@dataclass(frozen=True, slots=True)
class Role:
    """Some tasks of a job that are alike, such as its workers or its parameter servers; needs are those of one task."""

    name: Annotated[str, Property(help="What it is called.", noun="a name such as worker", pattern=_KEY)]
    count: Annotated[int, Property(help="Tasks.", low=1, high=MOST_TASKS)] = 1
    min_count: Annotated[int | None, Property(help="Fewest tasks; by default count.", low=1, high=MOST_TASKS)] = None
    max_count: Annotated[int | None, Property(help="Most tasks; by default count.", low=1, high=MOST_TASKS)] = None
    gpus: Annotated[int, Property(help="GPUs of each task.", low=0, high=MOST_GPUS)] = 0
    cpus: Annotated[float, Property(help="CPU cores of each task.", low=0, high=1e6)] = 0.0
    memory_bytes: Annotated[float, Property(help="Host memory of each task.", unit="bytes", low=0, high=MOST_BYTES)] = (
        0.0
    )

    def __post_init__(self) -> None:
        check(self, f"role {self.name!r}")
        if not self.name:
            raise PropertyError("name", self.name, "a name such as worker", "role")
        if not self.count_range[0] <= self.count <= self.count_range[1]:
            raise PropertyError("count", self.count, "between min_count and max_count", f"role {self.name!r}")

    @property
    def count_range(self) -> tuple[int, int]:
        """Fewest and most tasks."""
        return (
            self.count if self.min_count is None else self.min_count,
            self.count if self.max_count is None else self.max_count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNeeds:
    """What a job needs and what is forecast of it."""

    # fmt: off
    gpus: Annotated[int, Property(
        help="GPUs it needs, all at once.", noun="a whole number of GPUs", low=0, high=MOST_GPUS, option="gpus",
        metavar="N", option_help="GPUs, all at once; 1-4 starts on 1 and may be resized up to 4.",
        written="a number such as 2, or a range such as 1-4",
    )] = 1
    min_gpus: Annotated[int | None, Property(
        help="An elastic job runs on this many GPUs or more; by default gpus.", noun="a whole number of GPUs", low=0,
        high=MOST_GPUS,
    )] = None
    max_gpus: Annotated[int | None, Property(
        help="An elastic job runs on this many GPUs or fewer; by default gpus.", noun="a whole number of GPUs", low=0,
        high=MOST_GPUS,
    )] = None
    gpu_frac: Annotated[float, Property(
        help="Part of a GPU it needs; below 1 only with one GPU.", noun="a fraction", low=0, above=True, high=1,
        option="gpu_frac", metavar="PART", option_help="Part of one GPU, such as 0.5.",
        written="a part of one GPU such as 0.5",
    )] = 1.0
    gpu_memory_bytes: Annotated[float, Property(
        help="Memory on each GPU; 0 is unknown.", unit="bytes", low=0, high=MOST_BYTES, option="gpu_memory",
        metavar="SIZE", option_help="Memory it needs on each GPU, such as 4GiB.", written="memory a GPU, such as 4GiB",
    )] = 0.0
    gpu_memory_low_bytes: Annotated[float, Property(
        help="Lower end of the forecast of gpu_memory_bytes.", unit="bytes", low=0, high=MOST_BYTES, or_nan=True,
        column="f8",
    )] = math.nan
    gpu_memory_high_bytes: Annotated[float, Property(
        help="Upper end of the forecast of gpu_memory_bytes.", unit="bytes", low=0, high=MOST_BYTES, or_nan=True,
        column="f8",
    )] = math.nan
    gpu_memory_source: Annotated[Source, Property(
        help="Where gpu_memory_bytes comes from.", column="i1", coded=True
    )] = Source.DECLARED
    gpu_util_frac: Annotated[float, Property(
        help="Expected use of its GPUs when it is alone, from 0 to 1.", noun="a utilization", low=0, high=1,
        or_nan=True, column="f8",
    )] = math.nan
    gpu_util_low_frac: Annotated[float, Property(
        help="Lower end of the forecast of gpu_util_frac.", noun="a utilization", low=0, high=1, or_nan=True,
        column="f8",
    )] = math.nan
    gpu_util_high_frac: Annotated[float, Property(
        help="Upper end of the forecast of gpu_util_frac.", noun="a utilization", low=0, high=1, or_nan=True,
        column="f8",
    )] = math.nan
    gpu_util_source: Annotated[Source, Property(
        help="Where gpu_util_frac comes from.", column="i1", coded=True
    )] = Source.DECLARED
    gpu_types: Annotated[tuple[str, ...], Property(
        help="GPU types it may run on; none is any.", noun="GPU types", most=64, option="gpu_type", metavar="TYPES",
        option_help="GPU types it may run on, such as A100,V100.", written="GPU types such as A100,V100",
    )] = ()
    sharing: Annotated[frozenset[Sharing], Property(
        help="How it may use a GPU.", option="sharing", metavar="MODES",
        option_help="How it may use a GPU: exclusive, time-slice, shared, mig.",
        written="exclusive, time-slice, shared or mig, joined by commas",
    )] = ANY_SHARING
    require: Annotated[LabelValues, Property(
        help="Labels its nodes must have, each with the values that will do.", most=32, option="require",
        metavar="KEY=VALUES", option_help="Only nodes with this label, such as zone=a,b; may be repeated.",
    )] = ()
    prefer: Annotated[LabelValues, Property(
        help="Labels its nodes should have if there is a choice.", most=32, option="prefer", metavar="KEY=VALUES",
        option_help="Rather nodes with this label, such as rack=7; may be repeated.",
    )] = ()
    within: Annotated[str, Property(
        help='A label in which all its nodes must agree, or "node" for a single one; empty is anywhere.',
        noun="the key of a label such as zone, or node", pattern=_KEY, most=128, option="within", metavar="KEY",
        option_help="All its nodes have this label in common, such as rack; node is one node.",
    )] = ""
    roles: Annotated[tuple[Role, ...], Property(
        help="Groups of tasks that start together; empty is a plain job.", most=64, option="role", metavar="ROLE",
        option_help="A group of tasks such as ps:2,cpus=4 or worker:4,gpus=1; may be repeated.",
        written="a name with a count and the needs of a task, such as ps:2,cpus=4,memory_bytes=8GiB",
    )] = ()
    cpus: Annotated[float, Property(
        help="CPU cores of the whole job, spread evenly over its GPUs.", noun="a number of CPU cores", low=0, high=1e6,
        option="cpus", metavar="N", option_help="CPUs of the whole job.", written="a number such as 4",
    )] = 0.0
    memory_bytes: Annotated[float, Property(
        help="Host memory of the whole job, spread evenly over its GPUs.", unit="bytes", low=0, high=MOST_BYTES,
        option="memory", metavar="SIZE", option_help="Memory of the whole job, such as 16GiB.",
        written="memory of the whole job, such as 16GiB",
    )] = 0.0
    priority: Annotated[int, Property(
        help="Higher ranks first, within what the policy allows.", low=-1e15, high=1e15, option="priority", metavar="N",
        option_help="Higher ranks first, where the policy looks at it.", written="a whole number such as 10",
        column="i8",
    )] = 0
    retries: Annotated[int, Property(
        help="How often it is started again after it failed; running out of memory has retries of its own.", low=0,
        high=100, option="retries", metavar="N", option_help="How often it is started again after it failed.",
        written="a whole number such as 3", column="i4",
    )] = 0
    requeue: Annotated[bool, Property(
        help="Whether it is run again after it was lost, with its supervisor or the machine, also if retries is 0.",
        option="requeue", option_help="Run it again if it is lost, with its supervisor or the machine.", column="?",
    )] = False
    steps: Annotated[float | None, Property(
        help="Training steps in all; none is not known.", noun="a number of steps", low=0, above=True, high=1e15,
        option="steps", metavar="N", option_help="Training steps in all.",
        written="a number of training steps such as 10000", column="f8",
    )] = None
    model: Annotated[str, Property(
        help="What it trains, as predictors and traces call it.", noun="a model", most=1024, option="model",
        metavar="MODEL", option_help="What it trains, for a forecast; as for gpuwise predict.",
        written="a model such as torchvision:resnet50 or train.py:build", column="i4", coded=True,
    )] = ""
    batch_per_gpu: Annotated[int, Property(
        help="Samples in a step on each GPU; 0 is unknown.", noun="a whole number of samples", low=0, high=1e15,
        option="batch", metavar="N", option_help="Samples in a step on each GPU.",
        written="a number of samples such as 64", column="i8",
    )] = 0
    speeds: Annotated[tuple[tuple[str, float], ...], Property(
        help="Expected speed on GPU types, and on MIG slices of them such as A100/2g, relative to the GPU that the run "
        "time is for; a type that is not named runs it at the node's speed.", low=0, high=1e6, most=256,
        noun="each GPU type once, with a speed from 0 to 1000000", column="i4", coded=True,
    )] = ()
    suspend_s: Annotated[float, Property(
        help="What saving its state costs it.", unit="s", low=0, high=MOST_SECONDS, column="f8"
    )] = 0.0
    resume_s: Annotated[float, Property(
        help="What loading its state costs it.", unit="s", low=0, high=MOST_SECONDS, column="f8"
    )] = 0.0
    migrate_s: Annotated[float, Property(
        help="What moving costs it.", unit="s", low=0, high=MOST_SECONDS, column="f8"
    )] = 0.0
    resize_s: Annotated[float, Property(
        help="What resizing costs it.", unit="s", low=0, high=MOST_SECONDS, column="f8"
    )] = 0.0
    # fmt: on

    @property
    def gpu_range(self) -> tuple[int, int]:
        """Fewest and most GPUs it may run on."""
        return (
            self.gpus if self.min_gpus is None else self.min_gpus,
            self.gpus if self.max_gpus is None else self.max_gpus,
        )

    @property
    def gpu_memory(self) -> Forecast:
        """What is forecast of its memory on each GPU; 0 is unknown."""
        return Forecast(
            self.gpu_memory_bytes, self.gpu_memory_low_bytes, self.gpu_memory_high_bytes, self.gpu_memory_source
        )

    @property
    def gpu_util(self) -> Forecast:
        """What is forecast of its use of its GPUs; NaN is unknown."""
        return Forecast(self.gpu_util_frac, self.gpu_util_low_frac, self.gpu_util_high_frac, self.gpu_util_source)
