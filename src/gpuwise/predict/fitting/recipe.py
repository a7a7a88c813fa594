"""A recipe: how a shipped predictor is fitted from data, where the data come from, and how its error is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.core.errors import GpuwiseError
from gpuwise.predict.base import Bools, Estimates, PredictionError, Predictor
from gpuwise.predict.columns import rows_where
from gpuwise.predict.fitting.data.tables import log_left_out
from gpuwise.predict.fitting.scores import Holdout
from gpuwise.predict.registry import Source


@dataclass(frozen=True, slots=True)
class Recipe:
    """One shipped predictor."""

    name: str
    """The file it is shipped as."""
    what: str
    """What it predicts, in one line."""
    data: tuple[str, ...]
    """The data sets it is fitted to, by their folders: only those with a permissive licence."""
    fit: Callable[[Path], Predictor]
    """From the folder of all data sets to the fitted predictor; the same each time."""
    holdouts: Callable[[Path], Iterator[Holdout]]
    """Its errors on data left out of a fit; may use other data sets too."""
    in_use: Callable[[Path, Any], Iterator[Holdout]]
    """The errors of a predictor that is fitted already, on all data available."""


Table = Mapping[str, Any]
PERMISSIVE = ("Apache-2.0", "MIT", "BSD", "ISC", "CC0", "CC-BY-4.0", "Unlicense")


def in_parts(*parts: Callable[..., Iterator[Holdout]]) -> Callable[..., Iterator[Holdout]]:
    """Holdouts one after the other; those whose data are missing are left out, which is logged."""

    def holdouts(*given: Any) -> Iterator[Holdout]:
        for part in parts:
            try:
                yield from part(*given)
            except GpuwiseError as error:
                log_left_out(f"{part.__name__.replace('_', ' ')}: {error}")

    return holdouts


def all_rows(
    name: str, predictor: Predictor, rows: Table, measured: str, unit: str, data: tuple[str, ...], group: str
) -> Holdout:
    """A fitted predictor applied to all rows, one group after the other; ``measured`` and ``group`` are columns.

    A group that it cannot predict, such as an unknown GPU, gets NaN, which is logged.
    """
    groups = np.asarray([str(each) for each in rows[group]])
    return Holdout(
        name=name,
        predictor=type(predictor).__name__,
        data=data,
        left_out="nothing: the predictor in use",
        unit=unit,
        measured=np.asarray(rows[measured], dtype=np.float64),
        estimates=Estimates.spread(len(groups), _estimates(predictor, rows, groups)),
        group=groups.tolist(),
        note="flatters a predictor that was fitted to the same data",
    )


def _estimates(predictor: Predictor, rows: Table, groups: NDArray[Any]) -> Iterator[tuple[Bools, Estimates]]:
    for group in np.unique(groups):
        try:
            yield groups == group, predictor.estimate(rows_where(rows, groups == group))
        except PredictionError as error:
            log_left_out(f"rows of {group}: {error}")


def each_of(groups: NDArray[Any]) -> Iterator[Bools]:
    """The rows of each group in turn."""
    if len(set(groups.tolist())) < 2:
        raise PredictionError(f"all data are of {groups[0]!s}: with it left out nothing remains to fit to")
    for group in sorted(set(groups.tolist())):
        yield np.asarray(groups == group)


def left_out(rows: Table, parts: Iterable[Bools], fit: Callable[[dict[str, Any]], Predictor]) -> Estimates:
    """Each part's rows as predicted by what was fitted to all the others."""

    def fitted_without(out: Bools) -> Predictor:
        if out.all():
            raise PredictionError("there is one group of rows only: with it left out nothing remains to fit to")
        return fit(rows_where(rows, ~out))

    made = ((out, fitted_without(out).estimate(rows_where(rows, out))) for out in parts)
    return Estimates.spread(len(next(iter(rows.values()))), made)


def source_of(data: Path, name: str) -> Source:
    """The repository and licence of a data set, from its SOURCE.md."""
    path = data / name / "SOURCE.md"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        log_left_out(f"where data set {name} comes from: there is no {path}. Do not ship what is fitted to it")
        return Source(name, "", "")
    given = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}
    if not given.get("Licence"):
        log_left_out(f"the licence of data set {name}: {path} names none. Do not ship what is fitted to it")
    return Source(name, given.get("Repository", ""), given.get("Licence", ""))


def is_permissive(source: Source) -> bool:
    """Whether what is learned from a data set may be shipped."""
    return source.licence.startswith(PERMISSIVE)
