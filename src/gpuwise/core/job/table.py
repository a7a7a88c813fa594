"""The job table: what was declared of every job, and its progress."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.kinds import Choice
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Forecast
from gpuwise.core.job.schema import Entry, entries
from gpuwise.core.job.shape import PASSING, SHAPE_FIELDS, Shape
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.tables import Array, Table
from gpuwise.core.units import WHOLE_GPU_MILLI

_DECLARED: Mapping[str, Entry] = entries(JobSpec)
CODED = tuple(name for name, entry in _DECLARED.items() if entry.about.coded)
"""The properties whose columns have numbers that stand for values."""
PLAIN = tuple(name for name, entry in _DECLARED.items() if entry.about.column and not entry.about.coded)
"""The properties whose columns have their values."""


def _declared_columns() -> dict[str, tuple[str, float]]:
    """Type and default of the columns of what was declared; what must be given has none."""
    made: dict[str, tuple[str, float]] = {"shape": ("i4", -1)}
    for name, entry in _DECLARED.items():
        if entry.about.column:
            unset = entry.required or entry.default is None
            made[name] = (entry.about.column, 0 if entry.about.coded else math.nan if unset else entry.default)
    return made | {"steps_known": ("i1", 0)}


class JobTable(Table):
    """One row per job: what was declared of it, then its progress."""

    COLUMNS: ClassVar[Mapping[str, tuple[str, float]]] = {
        **_declared_columns(),
        # its progress
        "status": ("i1", Status.DECLARED),
        "steps_done": ("f8", 0.0),  # as last reported, at since_s
        "since_s": ("f8", 0.0),
        "rate": ("f8", 0.0),  # believed steps per second from since_s on
        "saved_steps": ("f8", 0.0),  # what a restart would keep
        "placed_s": ("f8", math.nan),  # when it got the GPUs it has
        "attained_gpu_s": ("f8", 0.0),  # GPU time it had, up to placed_s
        "held_gpus": ("f8", 0.0),  # GPUs it has now, fractions counted as such
        "held_s": ("f8", 0.0),  # time it had GPUs, up to placed_s
        "overhead_gpu_s": ("f8", 0.0),  # GPU time without a step: loading, moving, waiting for others to leave
        "first_start_s": ("f8", math.nan),
        "finish_s": ("f8", math.nan),
        "placements": ("i4", 0),  # times it was given GPUs
        "preemptions": ("i4", 0),
        "migrations": ("i4", 0),
        "resizes": ("i4", 0),
        "held": ("i1", 0),  # on hold: may not be placed, for a reason outside the policy
        "reported_s": ("f8", math.nan),  # when it last reported its steps
        "reported_steps": ("f8", math.nan),
        "reported_rate": ("f8", math.nan),  # steps per second between its last two reports
        "over": ("i4", 0),  # of its placements, how many are known to be over
        "failures": ("i4", 0),  # those that count against its retries
        "out_of_memory": ("i4", 0),  # attempts that ran out of memory
        "refusals": ("i4", 0),  # starts refused in a row
        "resumed": ("i1", 0),  # whether its last attempt resumed what was suspended
    }

    if TYPE_CHECKING:  # a list of the columns here would be a second place

        def __getattr__(self, name: str) -> Array: ...

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.shapes: list[Shape] = []
        self.shape_by_row: list[Shape] = []
        """What each job asks for; a list, since the path of every event reads it."""
        self.values: dict[str, list[Any]] = {name: _first_values(name) for name in CODED}
        """What the numbers in the coded columns stand for."""
        self.tenants: list[str] = self.values["tenant"]
        self.models: list[str] = self.values["model"]
        self.speed_tables: list[dict[str, float]] = [{}]
        """Speeds by GPU type; the first, of which nothing is known, is that of most jobs."""
        self._codes: dict[str, dict[Any, int]] = {
            name: {value: code for code, value in enumerate(listed)} for name, listed in self.values.items()
        }
        self._declared: dict[int, JobSpec] = {}
        self._shape_ids: dict[tuple[Any, ...], int] = {}

    def shape_of(self, row: int) -> Shape:
        """What job ``row`` asks for."""
        return self.shape_by_row[row]

    def declare(self, specs: Iterable[JobSpec]) -> range:
        """Adds jobs one by one and returns their rows."""
        specs = list(specs)
        return self.declare_columns({name: [getattr(spec, name) for spec in specs] for name in _DECLARED})

    def declare_columns(self, given: Mapping[str, Sequence[Any]]) -> range:
        """Adds many jobs at once from columns named as the fields of `JobSpec`, already checked."""
        ids = [str(name) for name in given["id"]]
        count = len(ids)
        self._register_ids(ids)
        of = {name: _column(given.get(name), entry, count) for name, entry in _DECLARED.items() if name != "id"}
        codes = [self._shape_id(key) for key in _shape_keys(of)]
        self.shape_by_row += [self.shapes[code] for code in codes]
        columns: dict[str, Array] = {"shape": np.asarray(codes, dtype="i4")}
        for name in CODED:
            values = of[name] if name in given else of[name][:1]  # all the same where it was not given
            columns[name] = _encode(values, self.values[name], self._codes[name])
        self.speed_tables += [dict(each) for each in self.values["speeds"][len(self.speed_tables) :]]
        for name in PLAIN:
            columns[name] = np.asarray(of[name], dtype=_DECLARED[name].about.column)
        known = ~np.isnan(columns["steps"])
        columns["steps"] = np.where(known, columns["steps"], columns["duration_s"])
        return self.extend(columns | {"steps_known": known}, count)

    def declared(self, row: int) -> JobSpec:
        """What was declared of a job, whatever was found out since."""
        return self._declared.get(row) or self.spec(row)

    def keep_declared(self, row: int) -> None:
        """Remembers what was declared of a job before anything of it is revised."""
        if row not in self._declared:
            self._declared[row] = self.spec(row)

    def revise_duration(self, row: int, forecast: Forecast) -> None:
        """Another run time."""
        self.duration_s[row] = forecast.value
        self._set_interval("duration_low_s", "duration_high_s", "duration_source", row, forecast)

    def revise_util(self, row: int, forecast: Forecast) -> None:
        """Another use of its GPUs."""
        self.gpu_util_frac[row] = forecast.value
        self._set_interval("gpu_util_low_frac", "gpu_util_high_frac", "gpu_util_source", row, forecast)

    def _set_interval(self, low: str, high: str, source: str, row: int, forecast: Forecast) -> None:
        getattr(self, low)[row], getattr(self, high)[row] = forecast.low, forecast.high
        getattr(self, source)[row] = self._codes[source][forecast.source]

    def revise_memory(self, row: int, forecast: Forecast) -> None:
        """Changes what a job asks for: another amount of memory on each GPU."""
        self._set_interval("gpu_memory_low_bytes", "gpu_memory_high_bytes", "gpu_memory_source", row, forecast)
        self.reshape(row, gpu_memory_bytes=forecast.value)

    def reshape(self, row: int, **changes: Any) -> None:
        """Changes what a job asks for, or what is in its shape for a while; it must not be in the queue meanwhile."""
        old = self.shape_by_row[row]
        key = tuple(changes.get(name, getattr(old, name)) for name in SHAPE_FIELDS)
        passing = tuple(changes.get(name, getattr(old, name)) for name in PASSING)
        code = self._shape_id((*key, *passing) if any(passing) else key)
        self.shape[row] = code
        self.shape_by_row[row] = self.shapes[code]

    def spec(self, row: int) -> JobSpec:
        """The declaration of job ``row`` as an object."""
        shape = self.shape_of(row)
        made: dict[str, Any] = {name: getattr(shape, name) for name in SHAPE_FIELDS if name != "milli"}
        made |= {name: getattr(self, name).item(row) for name in PLAIN}
        made |= {name: self.value(name, row) for name in CODED}
        if not self.steps_known.item(row):
            made["steps"] = None
        return JobSpec(id=self.ids[row], gpu_frac=shape.milli / WHOLE_GPU_MILLI, **made)

    def value(self, name: str, row: int) -> Any:
        """What the number in a coded column stands for, such as ``value("model", job)``."""
        return self.values[name][getattr(self, name).item(row)]

    def duration(self, row: int) -> Forecast:
        """What is forecast of a job's run time."""
        return Forecast(
            self.duration_s.item(row), self.duration_low_s.item(row), self.duration_high_s.item(row),
            self.value("duration_source", row),
        )  # fmt: skip

    def gpu_memory(self, row: int) -> Forecast:
        """What is forecast of a job's memory on each GPU; 0 is unknown."""
        return Forecast(
            self.shape_by_row[row].gpu_memory_bytes, self.gpu_memory_low_bytes.item(row),
            self.gpu_memory_high_bytes.item(row), self.value("gpu_memory_source", row),
        )  # fmt: skip

    def gpu_util(self, row: int) -> Forecast:
        """What is forecast of a job's use of its GPUs; NaN is unknown."""
        return Forecast(
            self.gpu_util_frac.item(row), self.gpu_util_low_frac.item(row), self.gpu_util_high_frac.item(row),
            self.value("gpu_util_source", row),
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


def _first_values(name: str) -> list[Any]:
    """Values that have their number from the start: the members of an enumeration; no speeds, as most jobs have."""
    kind = _DECLARED[name].kind
    return list(kind.members) if isinstance(kind, Choice) else [()] if name == "speeds" else []


def _column(given: Sequence[Any] | None, entry: Entry, count: int) -> Sequence[Any]:
    """A column as it was given, or of defaults; what is unknown as a number is NaN."""
    if given is None:
        if entry.required:
            raise GpuwiseError(f"jobs have no {entry.name}; it must be given")
        return [math.nan if entry.default is None and entry.about.column else entry.default] * count
    if entry.may_be_none and entry.about.column:
        return [math.nan if each is None else each for each in given]
    return given


def _shape_keys(of: Mapping[str, Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """What each job asks for, as the key of its shape."""
    gpus: list[int] = np.asarray(of["gpus"], dtype="i8").tolist()
    milli = np.maximum(np.rint(np.asarray(of["gpu_frac"], dtype="f8") * WHOLE_GPU_MILLI), 1).astype("i8").tolist()
    asked: dict[str, Iterable[Any]] = {
        "gpus": gpus,
        "min_gpus": (own if low is None else int(low) for low, own in zip(of["min_gpus"], gpus, strict=True)),
        "max_gpus": (own if high is None else int(high) for high, own in zip(of["max_gpus"], gpus, strict=True)),
        "milli": milli,
    }
    return zip(*(asked[name] if name in asked else of[name] for name in SHAPE_FIELDS), strict=True)


def _encode(values: Sequence[Any], listed: list[Any], known: dict[Any, int]) -> Array:
    """The numbers of values, which are listed when they are first met."""
    for value in dict.fromkeys(values):
        if value not in known:
            known[value] = len(listed)
            listed.append(value)
    return np.fromiter(map(known.__getitem__, values), dtype="i4", count=len(values))
