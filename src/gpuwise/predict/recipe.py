"""A recipe: how a shipped predictor is fitted from data, and how its error is measured on data left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Bools, Estimates, Predictor, rows_where
from gpuwise.predict.scores import Holdout


@dataclass(frozen=True, slots=True)
class Recipe:
    """One shipped predictor."""

    name: str
    """The file it is shipped as."""
    what: str
    """What it predicts, in a line."""
    data: tuple[str, ...]
    """The data sets it is fitted to, by their folders: only those with a permissive licence."""
    fit: Callable[[Path], Predictor]
    """From the folder of all data sets to the fitted predictor; the same each time."""
    holdouts: Callable[[Path], Iterator[Holdout]]
    """Its errors on data left out of a fit; may use other data sets too."""


Table = Mapping[str, Any]


def each_of(groups: NDArray[Any]) -> Iterator[Bools]:
    """The rows of each group in turn."""
    for group in sorted(set(groups.tolist())):
        yield np.asarray(groups == group)


def left_out(rows: Table, parts: Iterable[Bools], fit: Callable[[dict[str, Any]], Predictor]) -> Estimates:
    """Each part's rows as predicted by what was fitted to all the others."""
    made = ((out, fit(rows_where(rows, ~out)).estimate(rows_where(rows, out))) for out in parts)
    return Estimates.spread(len(next(iter(rows.values()))), made)
