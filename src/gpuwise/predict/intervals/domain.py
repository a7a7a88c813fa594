"""The domain of a fit: ranges and names of its data, beyond which a predictor extrapolates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from gpuwise.predict.base import Bools, Columns, packable
from gpuwise.predict.columns import floats, strings

MARGIN = 1.25
"""Up to this factor beyond the largest and smallest value of the fit still counts as inside."""


@packable
class Domain:
    """The range of each number and the known names of each category."""

    def __init__(self, ranges: Mapping[str, tuple[float, float]], names: Mapping[str, Sequence[str]]) -> None:
        self.ranges = {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
        self.names = {name: sorted(known) for name, known in names.items()}

    @classmethod
    def of(cls, X: Columns, numbers: Sequence[str] = (), names: Sequence[str] = ()) -> Self:  # noqa: N803
        """The domain of the data of a fit, by these columns."""
        ranges = {name: (np.nanmin(floats(X, name)), np.nanmax(floats(X, name))) for name in numbers}
        return cls(ranges, {name: sorted(set(strings(X, name))) for name in names})

    def contains(self, X: Columns) -> Bools:  # noqa: N803
        """Whether each row is like the data of the fit."""
        inside: Bools = np.ones(1, dtype=np.bool_)
        for name, (low, high) in self.ranges.items():
            value = floats(X, name)
            below, above = (low / MARGIN, high * MARGIN) if low >= 0 else (low, high)
            inside = inside & (value >= below) & (value <= above)
        for name, known in self.names.items():
            inside = inside & np.isin(strings(X, name), known)
        return np.asarray(inside, dtype=np.bool_)

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        return {"ranges": self.ranges, "names": self.names}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        return cls({name: (low, high) for name, (low, high) in document["ranges"].items()}, document["names"])
