"""Plots of what was predicted against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from gpuwise.service.offline.fitting import Evaluated

MOST_POINTS = 2000
MOST_GROUPS = 8


def draw(evaluated: Evaluated, folder: Path) -> Path:
    """One plot of a holdout: a point a row, the line on which predictions would be right, and the 90 % intervals."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise GpuwiseError(
            "plots are drawn with matplotlib, which is not installed; pip install 'gpuwise[plot]'"
        ) from error
    holdout, scores = evaluated.holdout, evaluated.scores
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.subplots()
    _points(axes, evaluated)
    axes.set(xlabel=f"measured ({holdout.unit})", ylabel=f"predicted ({holdout.unit})", xscale="log", yscale="log")
    axes.set_title(
        f"{holdout.name}: {holdout.left_out}\n{scores.rows} rows, MAPE {100 * scores.mape:.1f} %, "
        f"90 % interval holds {100 * scores.coverage:.0f} %",
        fontsize=10,
    )
    axes.legend(fontsize=8, loc="upper left")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{holdout.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def _points(axes: Any, evaluated: Evaluated) -> None:
    holdout = evaluated.holdout
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
