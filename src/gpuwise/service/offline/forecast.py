"""A forecast: what a model will do on each GPU or VM type, every number with its interval and its source."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuwise.core.units import GIB, format_duration

if TYPE_CHECKING:
    import polars

    from gpuwise.graph.ops import Graph

OUTSIDE = " *"
"""Marks what is unlike the data of the fit."""
QUANTITIES = ("step_time_s", "epoch_time_s", "gpu_util_pct", "memory_bytes", "samples_per_s", "usd_per_epoch")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its 90 % interval."""

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return self.value

    def times(self, factor: float) -> Quantity:
        """The same in another unit."""
        return Quantity(self.value * factor, self.low * factor, self.high * factor)

    def inverse(self, over: float) -> Quantity:
        """``over`` divided by it: from seconds per step to samples per second."""
        return Quantity(over / self.value, over / self.high, over / self.low)

    def as_dict(self) -> dict[str, float]:
        """Value, low and high."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Row:
    """The forecast for one GPU type, or for one VM with all its GPUs."""

    gpu: str
    vm: str | None
    gpus: int
    batch: int
    """On each GPU."""
    precision: str
    step_time_s: Quantity
    epoch_time_s: Quantity
    gpu_util_pct: Quantity
    memory_bytes: Quantity
    """On each GPU."""
    samples_per_s: Quantity
    """Of all GPUs together."""
    usd_per_epoch: Quantity | None
    capacity_bytes: float
    fits: bool
    """Whether it is more likely than not to have enough memory."""
    p_oom: float
    """The probability that it runs out of memory."""
    source: str
    """What the step time comes from: measured nearby, model family, or roofline."""
    in_domain: bool
    """Whether model and GPU are like those that step time and memory were fitted to."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: quantities as value, low and high."""
        made: dict[str, Any] = {"gpu": self.gpu} | ({"vm": self.vm} if self.vm else {})
        made |= {"gpus": self.gpus, "batch": self.batch, "precision": self.precision}
        for name in QUANTITIES:
            quantity: Quantity | None = getattr(self, name)
            made[name] = None if quantity is None else quantity.as_dict()
        for name in ("capacity_bytes", "fits", "p_oom", "source", "in_domain"):
            made[name] = getattr(self, name)
        return made

    def flat(self) -> dict[str, Any]:
        """For frames and CSV: three columns per quantity."""
        made: dict[str, Any] = {}
        for name, value in self.as_dict().items():
            if name in QUANTITIES:
                for part in ("value", "low", "high"):
                    column = name if part == "value" else f"{name}_{part}"
                    made[column] = None if value is None else value[part]
            else:
                made[name] = value
        return made

    def shown(self, in_seconds: bool = False) -> dict[str, str]:
        """For people: intervals of 90 % in brackets, units in the names."""
        name = f"{self.vm} ({self.gpus} × {self.gpu})" if self.vm else f"{self.gpus} × {self.gpu}"
        name = name if self.vm or self.gpus > 1 else self.gpu
        fits = "yes" if self.p_oom < 0.05 else "no" if self.p_oom > 0.95 else f"{100 * (1 - self.p_oom):.0f} % likely"
        return {
            "vm" if self.vm else "gpu": name,
            f"step {'s' if in_seconds else 'ms'}": _span(self.step_time_s.times(1.0 if in_seconds else 1e3)),
            "epoch": format_duration(self.epoch_time_s.value),
            "samples/s": _span(self.samples_per_s),
            "utilization %": _span(self.gpu_util_pct),
            "memory GiB": f"{_span(self.memory_bytes.times(1 / GIB))} of {self.capacity_bytes / GIB:.3g}",
            "fits": fits,
            "$ per epoch": "-" if self.usd_per_epoch is None else _span(self.usd_per_epoch),
            "source": self.source + ("" if self.in_domain else OUTSIDE),
        }


@dataclass(frozen=True)
class Forecast(Sequence[Row]):
    """The forecast of a model: a sequence of rows, one per GPU or VM type."""

    model: str
    batch: int
    epoch_samples: int
    graph: Graph
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        """A row by number, or by the name of its GPU or VM."""
        if isinstance(index, str):
            for row in self.rows:
                if index in (row.vm, row.gpu):
                    return row
            raise KeyError(index)
        return self.rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def slowest(self) -> Row:
        """The row with the longest step."""
        return max(self.rows, key=lambda row: row.step_time_s.value)

    def for_job(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a job's request as predicted on the slowest GPU type, where nothing is declared."""
        row = self.slowest
        made: dict[str, Any] = {}
        if len(self.rows) > 1:
            made["speeds"] = {each.gpu: row.step_time_s.value / each.step_time_s.value for each in self.rows}
        if "steps" in declared:
            whole = row.step_time_s.times(declared["steps"])
            made |= {"predicted_s": whole.value, "predicted_low_s": whole.low, "predicted_high_s": whole.high}
        if "gpu_memory_bytes" not in declared:  # a forecast is no reason to refuse a job: it may have the whole GPU
            made |= _request_fields("gpu_memory_bytes", row.memory_bytes, row.capacity_bytes)
        if "gpu_util_frac" not in declared:
            made |= _request_fields("gpu_util_frac", row.gpu_util_pct.times(0.01), 1.0)
        return made

    @property
    def title(self) -> str:
        """What was asked, and the model in numbers."""
        graph = self.graph
        return (
            f"{self.model}, batch {self.batch} per GPU, {graph.precision}, {graph.optimizer}: "
            f"{graph.parameters / 1e6:.4g} M parameters, {graph.forward_macs / graph.batch / 1e9:.4g} GMACs per sample "
            f"forward; an epoch is {self.epoch_samples:,} samples"
        )

    def table(self) -> list[dict[str, str]]:
        """The rows as people read them, with one unit per column."""
        unit_s = max((row.step_time_s.value for row in self.rows), default=0.0) >= 10.0
        return [row.shown(in_seconds=unit_s) for row in self.rows]

    def remarks(self) -> tuple[str, ...]:
        """Notes to show below the table."""
        outside = any(not row.in_domain for row in self.rows)
        return (*self.notes, *([f"{OUTSIDE.strip()} the model or the GPU is unlike the data of the fit"] * outside))

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as JSON has them."""
        return [row.as_dict() for row in self.rows]

    def to_frame(self) -> polars.DataFrame:
        """The rows as a polars frame, three columns per quantity."""
        import polars

        return polars.DataFrame([row.flat() for row in self.rows])

    def __str__(self) -> str:
        shown = self.table()
        names = list(shown[0]) if shown else []
        widths = [max(len(name), *(len(row[name]) for row in shown)) for name in names]
        lines = ["  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))]
        lines += ["  ".join(row[name].ljust(width) for name, width in zip(names, widths, strict=True)) for row in shown]
        return "\n".join((self.title, *(line.rstrip() for line in lines), *self.remarks()))

    def _repr_html_(self) -> str:
        shown = self.table()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (shown[0] if shown else ()))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row.values()) + "</tr>" for row in shown
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.remarks())
        return f"<table><caption>{html.escape(self.title)}</caption><tr>{head}</tr>{body}</table>{notes}"


def _request_fields(name: str, quantity: Quantity, most: float) -> dict[str, Any]:
    """A quantity as fields of a job's request: value, low, high and source; the value is at most ``most``."""
    stem, unit = name.rsplit("_", 1)
    value = min(quantity.value, most)
    low, high = min(quantity.low, value), max(min(quantity.high, 1.0) if unit == "frac" else quantity.high, value)
    return {name: value, f"{stem}_low_{unit}": low, f"{stem}_high_{unit}": high, f"{stem}_source": "predicted"}


def _span(quantity: Quantity) -> str:
    low, value, high = (_short(each) for each in (quantity.low, quantity.value, quantity.high))
    return f"{value} [{low}, {high}]"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
