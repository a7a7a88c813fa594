"""Fits the shipped predictors from measured data, and measures their errors on data left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.core import __version__
from gpuwise.core.errors import GpuwiseError
from gpuwise.predict import registry
from gpuwise.predict.base import COVERAGE
from gpuwise.predict.fitting.data.tables import log_left_out
from gpuwise.predict.fitting.recipe import PERMISSIVE, Recipe, is_permissive, source_of
from gpuwise.predict.fitting.recipes import choose
from gpuwise.predict.fitting.scores import Holdout, Scores, Target, score

DIGITS = 4
"""Significant digits of errors that are written and shown."""
MOST_POINTS, MOST_GROUPS = 2000, 8
"""Of a plot."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A holdout with its scores."""

    holdout: Holdout
    scores: Scores

    recipe: str
    """The predictor's name, as `fit` and `evaluate` take it."""

    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        holdout = self.holdout
        measures = {name: _rounded(value) for name, value in asdict(self.scores).items()}
        return {
            "holdout": holdout.name,
            "predictor": self.recipe,
            "class": holdout.predictor,
            "data": " ".join(holdout.data),
            "left_out": holdout.left_out,
            "unit": holdout.unit,
            **measures,
            "target": "; ".join(_goal(target) for target in holdout.targets),
            "met": "; ".join(self._verdict(target) for target in holdout.targets),
            "note": holdout.note,
        }

    def by_group(self) -> Iterator[dict[str, Any]]:
        """A row for each data set, GPU or family in it."""
        groups = np.asarray(self.holdout.group)
        for name in sorted(set(groups.tolist())):
            part = self.holdout.rows(groups == name)
            measures = asdict(score(part.measured, part.estimates))
            yield {"holdout": self.holdout.name, "group": name} | {
                key: _rounded(each) for key, each in measures.items()
            }

    def draw(self, folder: Path) -> Path:
        """Plots predicted against measured: a point per row, where the two would be equal, and the 90 % intervals."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise GpuwiseError("matplotlib is not installed; pip install 'gpuwise[plot]'") from error
        holdout, scores = self.holdout, self.scores
        figure = Figure(figsize=(6.4, 6.0), layout="constrained")
        axes = figure.subplots()
        _draw_points(axes, holdout)
        axes.set(xlabel=f"measured ({holdout.unit})", ylabel=f"predicted ({holdout.unit})", xscale="log", yscale="log")
        figures = f"{scores.rows} rows, MAPE {100 * scores.mape:.1f} %, coverage {100 * scores.coverage:.0f} %"
        axes.set_title(f"{holdout.name}: {holdout.left_out}\n{figures}", fontsize=10)
        axes.legend(fontsize=8, loc="upper left")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{holdout.name}.svg"
        figure.savefig(path, metadata={"Date": None})
        return path

    def _verdict(self, target: Target) -> str:
        reached = getattr(self.scores, target.measure)
        if target.measure == "coverage":
            off = abs(reached - COVERAGE)
            return "goal" if off <= COVERAGE - target.goal else "yes" if off <= COVERAGE - target.at_least else "no"
        return "goal" if reached <= target.goal else "yes" if reached <= target.at_least else "no"


def _draw_points(axes: Any, holdout: Holdout) -> None:
    measured, estimates = np.asarray(holdout.measured), holdout.estimates
    some = np.linspace(0, len(measured) - 1, min(len(measured), MOST_POINTS)).astype(int)
    ends = np.array([min(measured.min(), estimates.value.min()), max(measured.max(), estimates.value.max())])
    axes.plot(ends, ends, color="black", linewidth=0.8, label="predicted = measured")
    axes.vlines(measured[some], estimates.low[some], estimates.high[some], color="0.8", linewidth=0.6, zorder=0)
    groups = np.asarray(holdout.group) if len(holdout.group) else np.full(len(measured), "")
    names, counts = np.unique(groups, return_counts=True)
    largest = set(names[np.argsort(-counts)][:MOST_GROUPS].tolist())
    for name in [*sorted(largest), None]:
        mask = np.isin(groups, sorted(largest), invert=True) if name is None else groups == name
        chosen = some[mask[some]]
        if len(chosen):
            axes.plot(measured[chosen], estimates.value[chosen], ".", markersize=4, label=name or "others")


def evaluate(names: Sequence[str], data: Path) -> Iterator[Evaluated]:
    """Runs the holdouts of some predictors, or of all, one after the other."""
    for recipe in choose(list(names)):
        yield from _scored(recipe.name, recipe.holdouts(data))


def evaluate_in_use(names: Sequence[str], data: Path) -> Iterator[Evaluated]:
    """Asks predictors as they are shipped (or of one's own) for what was measured; nothing is fitted."""
    for recipe in choose(list(names)):
        yield from _scored(recipe.name, recipe.in_use(data, registry.load(recipe.name).predictor))


def _scored(recipe: str, holdouts: Iterator[Holdout]) -> Iterator[Evaluated]:
    """Holdouts with their scores; rows without an answer are left out, and what cannot be done is reported."""
    try:
        for holdout in holdouts:
            measured, made = np.asarray(holdout.measured), holdout.estimates
            usable = (measured > 0) & np.isfinite(measured) & np.isfinite(made.value + made.low + made.high)
            if not usable.all() or not len(usable):
                log_left_out(
                    f"{int(np.sum(~usable))} of {len(usable)} rows of {holdout.name}: nothing measured or predicted"
                )
            if usable.any():
                kept = holdout.rows(usable)
                yield Evaluated(kept, score(np.asarray(kept.measured), kept.estimates), recipe)
    except GpuwiseError as error:
        log_left_out(f"predictor {recipe}: {error}")


def fit(recipe: Recipe, data: Path, *, made: str = "", errors: bool = True) -> registry.Fitted:
    """Fits one predictor; its errors are measured beside it."""
    there = [name for name in recipe.data if (data / name).is_dir()]
    sources = tuple(source_of(data, name) for name in there)
    for source in sources:
        if source.licence and not is_permissive(source):
            raise GpuwiseError(
                f"predictor {recipe.name}: data set {source.name} has the licence {source.licence!r}; only "
                f"permissive ones ({', '.join(PERMISSIVE)}) go into a predictor that is shipped"
            )
    predictor = recipe.fit(data)
    rows = [each.row() for each in evaluate([recipe.name], data)] if errors else []
    today = made or date.today().isoformat()
    return registry.Fitted(recipe.name, recipe.what, predictor, sources, __version__, today, rows)


def fit_and_write(name: str, data: Path, folder: Path, *, made: str, errors: bool) -> dict[str, Any]:
    """Fits one predictor and writes its file, which the row that is returned names."""
    (recipe,) = choose([name])
    path = registry.write(fit(recipe, data, made=made, errors=errors), folder)
    return {**_about(recipe), "file": str(path), "size_bytes": path.stat().st_size}


def fit_and_check(name: str, data: Path) -> tuple[dict[str, Any], list[str]]:
    """Fits one predictor; a row, and what is not the same in the one that is in use."""
    (recipe,) = choose([name])
    found = differences(fit(recipe, data, errors=False), registry.load(name))
    return {**_about(recipe), "same": not found}, found


def predictor_names(names: Sequence[str]) -> list[str]:
    """Names of predictors, checked; all if none is given."""
    return [recipe.name for recipe in choose(list(names))]


def _about(recipe: Recipe) -> dict[str, Any]:
    return {"predictor": recipe.name, "what": recipe.what, "data": list(recipe.data)}


def differences(fitted: registry.Fitted, shipped: registry.Fitted) -> list[str]:
    """What is not the same in two fits of a predictor, in words; empty if they are equal."""
    ours, theirs = fitted.predictor.to_document(), shipped.predictor.to_document()
    return [f"{fitted.name}: {path}" for path in _unequal(ours, theirs)]


def _unequal(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name in ours:
            yield from _unequal(ours[name], theirs[name], f"{path}.{name}")
    elif isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _unequal(one, other, f"{path}[{number}]")
    elif isinstance(ours, float) and isinstance(theirs, (int, float)):
        if not np.isclose(ours, theirs, rtol=1e-6, atol=1e-12):
            yield f"{path}: {ours!r}, not {theirs!r}"
    elif ours != theirs:
        yield f"{path}: {str(ours)[:80]}, not {str(theirs)[:80]}"


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _goal(target: Target) -> str:
    return f"{target.measure} {target.at_least:g}, goal {target.goal:g}"
