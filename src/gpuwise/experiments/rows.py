"""The rows of an experiment: a published figure and ours."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure beside ours."""

    experiment: str
    metric: str
    unit: str
    paper: float | None
    """None where nothing was published."""
    ours: float
    within: float = 0.0
    """How far ours may be off: a part of the published figure, or points where the unit is a percentage."""
    note: str = ""

    @property
    def error(self) -> float:
        """Ours against theirs, as a part of theirs; in points where the unit is a percentage; NaN without theirs."""
        if self.paper is None:
            return math.nan
        if self.unit == "%":
            return self.ours - self.paper
        return self.ours / self.paper - 1 if self.paper else math.nan

    def as_dict(self) -> dict[str, str | float | bool | None]:
        """The row for JSON and tables."""
        return {
            "experiment": self.experiment, "metric": self.metric, "unit": self.unit, "paper": self.paper,
            "ours": self.ours, "difference": self.difference, "within": self.within, "met": self.met, "note": self.note,
        }  # fmt: skip

    @property
    def difference(self) -> str | None:
        """The error as text."""
        if math.isnan(self.error):
            return None
        error = round(self.error if self.unit == "%" else 100 * self.error, 2) + 0.0  # never -0.00
        return f"{error:+.2f} {'points' if self.unit == '%' else '%'}"

    @property
    def met(self) -> bool | None:
        """Whether ours is within the limit; None where nothing was published."""
        return None if self.paper is None else abs(self.error) <= self.within
