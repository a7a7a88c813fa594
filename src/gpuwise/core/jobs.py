"""The job table: what was declared of every job, and how far each has come."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.spec import ANY_SHARING, JobSpec, Sharing
from gpuwise.core.tables import Array, Table
from gpuwise.core.units import WHOLE_GPU_MILLI


class Status(enum.IntEnum):
    """The life of a job."""

    DECLARED = 0
    """Known, not submitted yet."""
    PENDING = 1
    STARTING = 2
    """Holds its GPUs; no step yet since a start, resume, move or resize."""
    RUNNING = 3
    SUSPENDING = 4
    """Its GPUs are promised to others; it is saving its state."""
    SUSPENDED = 5
    SUCCEEDED = 6
    FAILED = 7
    CANCELLED = 8


WAITING = frozenset((Status.PENDING, Status.SUSPENDED))
PLACED = frozenset((Status.STARTING, Status.RUNNING))
ENDED = frozenset((Status.SUCCEEDED, Status.FAILED, Status.CANCELLED))

LIFE_CYCLE: Mapping[Status, frozenset[Status]] = {
    Status.DECLARED: frozenset((Status.PENDING,)),
    Status.PENDING: frozenset((Status.STARTING, Status.CANCELLED)),
    Status.STARTING: frozenset((Status.STARTING, Status.RUNNING, Status.SUSPENDING, Status.PENDING, *ENDED)),
    Status.RUNNING: frozenset((Status.STARTING, Status.SUSPENDING, Status.PENDING, *ENDED)),
    Status.SUSPENDING: frozenset((Status.SUSPENDED, Status.PENDING, *ENDED)),
    Status.SUSPENDED: frozenset((Status.STARTING, Status.CANCELLED)),
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}
"""Which status may follow which; a job whose node is lost is pending again, one moved before its first step
starts anew."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job asks for; jobs that ask for the same have the same shape, so one look answers for all of them."""

    id: int
    gpus: int
    min_gpus: int
    max_gpus: int
    milli: int
    gpu_memory_bytes: float
    gpu_types: tuple[str, ...]
    sharing: frozenset[Sharing]
    cpus: float
    memory_bytes: float
    whole: bool = field(init=False)
    """Whether it asks for whole GPUs (or none)."""
    needs_host: bool = field(init=False)
    """Whether it asks for CPUs or memory of the node."""
    alone: bool = field(init=False)
    """Whether it may hold GPUs alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", self.milli == WHOLE_GPU_MILLI)
        object.__setattr__(self, "needs_host", self.cpus > 0 or self.memory_bytes > 0)
        object.__setattr__(self, "alone", Sharing.EXCLUSIVE in self.sharing)


SPEC_DEFAULTS: Mapping[str, Any] = {
    "submit_s": 0.0, "gpus": 1, "gpu_frac": 1.0, "gpu_memory_bytes": 0.0, "gpu_types": (), "sharing": ANY_SHARING,
    "cpus": 0.0, "memory_bytes": 0.0, "priority": 0, "deadline_s": math.inf, "tenant": "", "model": "",
    "batch_size": 0, "gpu_util_frac": math.nan, "speeds": (), "suspend_s": 0.0, "resume_s": 0.0, "migrate_s": 0.0,
    "resize_s": 0.0,
}  # fmt: skip


class JobTable(Table):
    """One row a job: what was declared of it, then how far it has come."""

    COLUMNS: ClassVar[Mapping[str, tuple[str, float]]] = {
        # declared and forecast
        "shape": ("i4", -1),
        "submit_s": ("f8", 0.0),
        "duration_s": ("f8", math.nan),
        "steps": ("f8", math.nan),
        "priority": ("i8", 0),
        "deadline_s": ("f8", math.inf),
        "tenant": ("i4", 0),
        "model": ("i4", 0),
        "batch_size": ("i8", 0),
        "gpu_util_frac": ("f8", math.nan),
        "speeds": ("i4", 0),  # which of `speed_tables`
        "suspend_s": ("f8", 0.0),
        "resume_s": ("f8", 0.0),
        "migrate_s": ("f8", 0.0),
        "resize_s": ("f8", 0.0),
        # how far it has come
        "status": ("i1", Status.DECLARED),
        "steps_done": ("f8", 0.0),  # as last reported, at since_s
        "since_s": ("f8", 0.0),
        "rate": ("f8", 0.0),  # believed steps per second from since_s on
        "saved_steps": ("f8", 0.0),  # what a restart would keep
        "placed_s": ("f8", math.nan),  # when it got the GPUs it holds
        "attained_gpu_s": ("f8", 0.0),  # GPU time held, up to placed_s
        "held_gpus": ("f8", 0.0),  # GPUs it holds now, fractions counted as such
        "held_s": ("f8", 0.0),  # time it held GPUs, up to placed_s
        "overhead_gpu_s": ("f8", 0.0),  # GPU time held without a step: loading, moving, waiting for others to leave
        "first_start_s": ("f8", math.nan),
        "finish_s": ("f8", math.nan),
        "placements": ("i4", 0),  # times it was given GPUs
        "preemptions": ("i4", 0),
        "migrations": ("i4", 0),
        "resizes": ("i4", 0),
        "held": ("i1", 0),  # may not be placed, for a reason outside the policy
        "over": ("i4", 0),  # of its placements, how many are known to be over
    }

    shape: Array
    submit_s: Array
    duration_s: Array
    steps: Array
    priority: Array
    deadline_s: Array
    tenant: Array
    model: Array
    batch_size: Array
    gpu_util_frac: Array
    speeds: Array
    suspend_s: Array
    resume_s: Array
    migrate_s: Array
    resize_s: Array
    status: Array
    steps_done: Array
    since_s: Array
    rate: Array
    saved_steps: Array
    placed_s: Array
    attained_gpu_s: Array
    held_gpus: Array
    held_s: Array
    overhead_gpu_s: Array
    first_start_s: Array
    finish_s: Array
    placements: Array
    preemptions: Array
    migrations: Array
    resizes: Array
    held: Array
    over: Array

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.shapes: list[Shape] = []
        self.shape_by_row: list[Shape] = []
        """What each job asks for; a list, since the path of every event reads it."""
        self.tenants: list[str] = []
        self.models: list[str] = []
        self.speed_tables: list[dict[str, float]] = [{}]
        """Speeds by GPU type; the first, of which nothing is known, is that of most jobs."""
        self._declared: dict[int, JobSpec] = {}
        self._shape_ids: dict[tuple[Any, ...], int] = {}
        self._tenant_ids: dict[str, int] = {}
        self._model_ids: dict[str, int] = {}
        self._speed_ids: dict[tuple[tuple[str, float], ...], int] = {(): 0}

    def shape_of(self, row: int) -> Shape:
        """What job ``row`` asks for."""
        return self.shape_by_row[row]

    def declare(self, specs: Iterable[JobSpec]) -> range:
        """Adds jobs one by one and returns their rows."""
        specs = list(specs)
        names = [field.name for field in fields(JobSpec)]
        return self.declare_columns({name: [getattr(spec, name) for spec in specs] for name in names})

    def declare_columns(self, given: Mapping[str, Sequence[Any]]) -> range:
        """Adds many jobs at once from columns named as the fields of `JobSpec`, already checked."""
        ids = [str(name) for name in given["id"]]
        count = len(ids)
        self._register_ids(ids)
        of = {name: given.get(name, [default] * count) for name, default in SPEC_DEFAULTS.items()}
        gpus: list[int] = np.asarray(of["gpus"], dtype="i8").tolist()
        milli = np.maximum(np.rint(np.asarray(of["gpu_frac"], dtype="f8") * WHOLE_GPU_MILLI), 1).astype("i8").tolist()
        asked = zip(
            gpus,
            (own if low is None else int(low) for low, own in zip(given.get("min_gpus", gpus), gpus, strict=True)),
            (own if high is None else int(high) for high, own in zip(given.get("max_gpus", gpus), gpus, strict=True)),
            milli,
            of["gpu_memory_bytes"], of["gpu_types"], of["sharing"], of["cpus"], of["memory_bytes"],
            strict=True,
        )  # fmt: skip
        durations = np.asarray(given["duration_s"], dtype="f8")
        steps = np.asarray([math.nan if s is None else s for s in given.get("steps", [None] * count)], dtype="f8")
        codes = [self._shape_id(key) for key in asked]
        self.shape_by_row += [self.shapes[code] for code in codes]
        columns: dict[str, Array] = {
            "shape": np.asarray(codes, dtype="i4"),
            "duration_s": durations,
            "steps": np.where(np.isnan(steps), durations, steps),
            "tenant": _codes(of["tenant"], self.tenants, self._tenant_ids),
            "model": _codes(of["model"], self.models, self._model_ids),
            "speeds": np.asarray([self._speed_id(tuple(each)) for each in of["speeds"]], dtype="i4"),
        }
        for name in (
            "submit_s",
            "priority",
            "deadline_s",
            "batch_size",
            "gpu_util_frac",
            "suspend_s",
            "resume_s",
            "migrate_s",
            "resize_s",
        ):
            columns[name] = np.asarray(of[name])
        return self.extend(columns, count)

    def declared(self, row: int) -> JobSpec:
        """What was declared of a job, whatever was found out since."""
        return self._declared.get(row) or self.spec(row)

    def keep_declared(self, row: int) -> None:
        """Remembers what was declared of a job before anything of it is revised."""
        if row not in self._declared:
            self._declared[row] = self.spec(row)

    def revise_memory(self, row: int, gpu_memory_bytes: float) -> None:
        """Changes what a job asks for: so much memory on each GPU."""
        old = self.shape_by_row[row]
        code = self._shape_id(
            (old.gpus, old.min_gpus, old.max_gpus, old.milli, gpu_memory_bytes, old.gpu_types, old.sharing, old.cpus,
             old.memory_bytes)
        )  # fmt: skip
        self.shape[row] = code
        self.shape_by_row[row] = self.shapes[code]

    def spec(self, row: int) -> JobSpec:
        """The declaration of job ``row`` as an object."""
        shape = self.shape_of(row)
        plain = {
            name: getattr(self, name).item(row)
            for name in ("submit_s", "duration_s", "steps", "priority", "deadline_s", "batch_size", "gpu_util_frac",
                         "suspend_s", "resume_s", "migrate_s", "resize_s")
        }  # fmt: skip
        return JobSpec(
            id=self.ids[row], gpus=shape.gpus, min_gpus=shape.min_gpus, max_gpus=shape.max_gpus,
            gpu_frac=shape.milli / WHOLE_GPU_MILLI, gpu_memory_bytes=shape.gpu_memory_bytes, gpu_types=shape.gpu_types,
            sharing=shape.sharing, cpus=shape.cpus, memory_bytes=shape.memory_bytes,
            tenant=self.tenants[self.tenant.item(row)], model=self.models[self.model.item(row)],
            speeds=tuple(self.speed_tables[self.speeds.item(row)].items()), **plain,
        )  # fmt: skip

    def _register_ids(self, ids: list[str]) -> None:
        first = self.length
        rows = dict(zip(ids, range(first, first + len(ids)), strict=True))
        if len(rows) < len(ids) or not self.row_of.keys().isdisjoint(rows):
            twice = next(name for at, name in enumerate(ids) if name in self.row_of or rows[name] != first + at)
            raise GpuwiseError(f"job id {twice!r} is used twice; ids must be unique")
        self.row_of.update(rows)
        self.ids += ids

    def _shape_id(self, key: tuple[Any, ...]) -> int:
        known = self._shape_ids.get(key)
        if known is None:
            known = self._shape_ids[key] = len(self.shapes)
            self.shapes.append(Shape(known, *key))
        return known

    def _speed_id(self, key: tuple[tuple[str, float], ...]) -> int:
        known = self._speed_ids.get(key)
        if known is None:
            known = self._speed_ids[key] = len(self.speed_tables)
            self.speed_tables.append(dict(key))
        return known


def _codes(names: Sequence[str], listed: list[str], known: dict[str, int]) -> Array:
    codes = np.empty(len(names), dtype="i4")
    for position, name in enumerate(names):
        code = known.get(name)
        if code is None:
            code = known[name] = len(listed)
            listed.append(name)
        codes[position] = code
    return codes
