"""A recipe: how a shipped predictor is fitted from data, and how its error is measured on data left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuwise.predict.base import Predictor
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
